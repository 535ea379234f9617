// Three functions that make y (triples.py): a thread for every f and h1, which goes through all h2 behind h1.
//
// q, which f leaves, is a + b h1 + c h2 only where its differences from the first point, those of h1 and those of h2
// have a determinant of 0: three products and a comparison for nearly every pair, and a closer look at the rest.
// Differences of h are at most 1, so that what counts as 0 does not depend on h2.

//{TriplesArguments}

//{arrays}

struct Row {
    const double *at;
    INLINE Long length() const { return POOL_POINTS; }
    INLINE double get(Long k) const { return at[k]; }
};

//{translated}

constexpr int D = 3;  // differences
constexpr int TOGETHER = 32;  // threads that go through the same h2 at the same time: one read for all of them

extern "C" __global__ void find_triples(const TriplesArguments args)
{
    const Long number = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (number >= args.n) return;
    const Long n_h = args.n_h, i = number % n_h;
    const double *q = args.q + number / n_h * POOL_POINTS, *one = args.differences + D * i;
    double minor[D], near = 0;  // of the determinant, and what counts as 0
    for (int k = 0; k < D; ++k) {
        const int l = (k + 1) % D, m = (k + 2) % D;
        const double left = (q[l + 1] - q[0]) * one[m], right = (q[m + 1] - q[0]) * one[l];
        minor[k] = left - right, near += args.near * (fabs(left) + fabs(right));
    }
    int found = -1;
    const Row h1{args.values + args.h[i] * POOL_POINTS};
    const Long lane = number % TOGETHER;
    for (Long j = i > lane ? i - lane : 0; j < n_h && found < 0; ++j) {
        const double a = args.differences[D * j], b = args.differences[D * j + 1], c = args.differences[D * j + 2];
        const double determinant = a * minor[0] + b * minor[1] + c * minor[2];
        if (!(fabs(determinant) <= near) || j <= i) continue;
        if (make_together(Row{q}, h1, Row{args.values + args.h[j] * POOL_POINTS})) found = int(j);
    }
    args.partner[number] = found;
}
