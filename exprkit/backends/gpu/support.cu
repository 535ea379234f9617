// The kernels before and after the interpreter.

#if SUPPORT

// ── before and after ─────────────────────────────────────────────────────────────────

// One operator on single numbers: columns and prologues.
__device__ __noinline__ T scalar(int code, T a, T a_low, T b, T &y_low)
{
    y_low = T(0);
    switch (code) {
    //{scalar cases}
    }
    return T(0);
}

// Column ``blockIdx.y`` of the programs from the user's data, a point per thread.
extern "C" __global__ void make_columns(const Arguments args)
{
    const Long point = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (point >= args.pitch) return;
    const Long source = min(point, args.n_points - 1);
    for (int c = blockIdx.y; c < args.n_columns; c += gridDim.y) {
        const T x = args.data[source * args.stride_point + args.column_var[c] * args.stride_variable];
        T low;
        const T y = scalar(args.column_code[c], x, T(0), T(0), low);
        args.columns[c * args.pitch + point] = args.column_low[c] ? low : y;
    }
}

// The last result of a prologue, which is mostly what is wanted.
struct Last {
    int index;
    DoubleDouble immediate;
};

// A row's parameters, the first ones read early: where they lie in the host's memory each read takes a microsecond.
struct Parameters {
    const T *row;
    T first, second;

    INLINE Parameters(const T *row, int n) : row(row), first(n > 0 ? row[0] : T(0)), second(n > 1 ? row[1] : T(0)) {}
    INLINE T get(int index) const { return index == 0 ? first : index == 1 ? second : row[index]; }
};

INLINE DoubleDouble find(const Arguments &args, int source, const Parameters &params, const T *results, const Last &last)
{
    const int index = source >> SOURCE_SHIFT;
    switch (source & SOURCE_KIND) {
    case PARAMETER: return DoubleDouble{params.get(index), T(0)};
    case CONSTANT: return DoubleDouble{args.constants[index], T(0)};
    case RESULT: return index == last.index ? last.immediate : DoubleDouble{results[index], results[index + 1]};
    }
    return DoubleDouble{T(0), T(0)};
}

// The immediates of one expression with one parameter set, a thread: run its prologue, then fill in its instructions' immediates.
// What takes time is how often a load waits for one before it, so the first instruction's source is read early.
extern "C" __global__ void make_immediates(const Arguments args)
{
    let_next_begin();
    wait_for_previous();  // which may have made the parameters, and reads the immediates
    const unsigned row = blockIdx.x * blockDim.x + threadIdx.x, n_exprs = args.n_exprs;
    if (row >= args.n_sets * n_exprs) return;
    const Parameters params(args.params + Long(row) * args.max_params, args.max_params);
    const unsigned set = row / n_exprs, e = row % n_exprs;
    const int first = args.first_step[e], end = args.first_step[e + 1], instruction = args.first_instruction[e];
    const int stop = e + 1 < n_exprs ? args.first_instruction[e + 1] : args.n_instructions;
    int source = args.sources[instruction];
    T *results = args.results + Long(set) * args.n_results;
    Last last{-1, DoubleDouble{T(0), T(0)}};
    for (int s = first; s < end; ++s) {
        const Step step = args.steps[s];
        const DoubleDouble a = find(args, step.a, params, results, last), b = find(args, step.b, params, results, last);
        T low;
        const T y = scalar(step.code, a.high, a.low, b.high, low);
        last = Last{step.result >> 1, DoubleDouble{y, low}};
        results[last.index] = y;
        if (step.result & 1) results[last.index + 1] = low;
    }
    DoubleDouble *immediates = args.immediates + Long(set) * args.n_instructions;
    for (int w = instruction; w < stop; ++w) {
        const int now = source;
        if (w + 1 < stop) source = args.sources[w + 1];
        if (now) immediates[w] = find(args, now, params, results, last);
    }
}

// Sum of an item's segments in float64 by ADDERS threads; the order depends on nothing but how many segments there are.
extern "C" __global__ void add_segments(const Arguments args)
{
    __shared__ double sums[LANES > 1 ? 256 : 1];
    const Long row = (Long(blockIdx.x) * blockDim.x + threadIdx.x) / ADDERS;
    const int adder = threadIdx.x % ADDERS, here = LANES > 1 ? threadIdx.x : 0;
    wait_for_previous();
    double sum = 0.0;
    if (row < args.n_items) {
#pragma unroll 8
        for (int c = adder; c < args.n_segments; c += ADDERS) sum += double(args.partials[row * args.n_segments + c]);
    }
    sums[here] = sum;
    for (int step = ADDERS / 2; step > 0; step /= 2) {
        __syncthreads();
        if (adder < step) sums[here] += sums[here + step];
    }
    if (adder == 0 && row < args.n_items) args.sums[row] = args.add_to_sums ? args.sums[row] + sums[here] : sums[here];
}

// Whole sums to the host, by one block: those of neighbours together, as the bus likes them.
extern "C" __global__ void __launch_bounds__(1024) hand_over(const Arguments args)
{
    const double *sums = reinterpret_cast<const double *>(args.partials);
    wait_for_previous();
#pragma unroll 8
    for (int i = threadIdx.x; i < args.n_items; i += blockDim.x) args.sums[i] = sums[i];
    __syncthreads();
    if (threadIdx.x == 0) tell(args.told, args.ticket);
}

// The nearest number of 16 bits, of two equally near ones the even one, as IEEE 754 says; what is too large becomes inf.
INLINE unsigned short nearest(T x)
{
    constexpr int OWN = sizeof(T) == 4 ? 23 : 52, OWN_BIAS = sizeof(T) == 4 ? 127 : 1023;
    constexpr int BIAS = (1 << (14 - FRACTION)) - 1, INFINITE = 0x8000 - (1 << FRACTION);
    unsigned long long bits = 0;
    memcpy(&bits, &x, sizeof(T));
    const int sign = int(bits >> (8 * sizeof(T) - 16)) & 0x8000;
    if (x != x) return sign | INFINITE | 1 << (FRACTION - 1);
    bits &= ~0ull >> (65 - 8 * sizeof(T));
    const int exponent = int(bits >> OWN), below = OWN_BIAS - BIAS + 1 - max(exponent, 1);  // the least there is in 16 bits
    const unsigned long long one = 1ull << OWN;
    if (below > 0) bits = (bits & (one - 1)) | (exponent ? one : 0);
    else bits -= (unsigned long long)(OWN_BIAS - BIAS) << OWN;
    const int dropped = min(OWN - FRACTION + max(below, 0), OWN + 2);
    const unsigned long long half = 1ull << (dropped - 1), rest = bits & (2 * half - 1), kept = bits >> dropped;
    const unsigned long long up = rest > half || (rest == half && (kept & 1));
    return sign | int(min(kept + up, (unsigned long long)INFINITE));
}

extern "C" __global__ void round_results(const Arguments args)
{
    const Long i = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < args.n_items) args.rounded[i] = nearest(args.out[i]);
}

#endif
