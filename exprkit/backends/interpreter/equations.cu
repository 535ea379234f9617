// Loss, J'r and J'J of one expression at one point in parameter space, by one block.
//
// The second of three texts (tangents.cu says which).  Makes a program's entries for the parameters, runs it over
// the block's points and adds up what they give: in T over FOLD tiles of a thread, then in float64.
//
//     arena     a block's memory, shared or (where that is too little) global; the host makes the
//               offsets (derivatives.py): entries, results of the prologue, sums of the warps, state of
//               the fit, then each warp's slots, their ``active``, and (MANY) rows and products
//     entries   a word with its number and the number's derivatives
//     sums      loss, J'r (n), J'J (n (n + 1) / 2 by rows of the lower triangle)
//
// The host defines, besides the macros of tangents.cu:
//
//     TASK          NORMAL, GRADIENT, JACOBIAN or FIT         KIND      SQUARES, DEVIATIONS, HUBER or POISSON
//     MANY          1: more than 4 parameters                 FOLD      tiles whose sums are made in T
//     PROLOGUES     1 where programs have prologues           WEIGHTED  1 where points have weights
//     RESULT_BYTES  the size of a prologue's result

enum { NORMAL, GRADIENT, JACOBIAN, FIT };
enum { SQUARES, DEVIATIONS, HUBER, POISSON };

constexpr int N_SUMS = TASK == GRADIENT ? 1 + TANGENTS : 1 + TANGENTS + TANGENTS * (TANGENTS + 1) / 2;
constexpr int ROW = TILE + WIDTH;         // of J at the points of a warp; apart by an odd number of vectors

struct __align__(8) Result { T value, low, rate[4]; unsigned active; };  // of a prologue
static_assert(sizeof(Result) == RESULT_BYTES, "the host and the kernel disagree about a result");

struct FitJob {
    // programs
    const Word *words;
    const int *first_word;
    const int *sources;
    const Step *steps;
    const int *first_step;
    const T *constants;
    const T *columns;            // (n_columns, pitch)
    const T *target, *weights;   // (pitch), zeros behind the last point
    const int *n_params;         // (n_exprs)
    const int *order;            // (n_here) the expressions of this launch
    // a fit
    const double *starts;        // (n_sets, n_exprs, max_params)
    const double *lower, *upper; // (n_exprs, max_params) or none
    const unsigned long long *linear;  // (n_exprs) bits of the parameters that the expression is linear in
    const unsigned char *verdicts;     // (n_exprs) RUNNING, or the status of what is not to be fitted
    // results, by set and expression
    double *params;              // (n_sets, n_exprs, max_params)
    double *loss;                // (n_sets, n_exprs)
    double *jtr, *jtj;           // (..., max_params), (..., max_params, max_params)
    int *iterations, *evaluations;
    unsigned char *status;
    T *jacobian;                 // (n_sets, n_exprs, n_points, max_params)
    char *arena;                 // where shared memory is too small for it
    double tol, gtol, delta;
    Long arena_bytes, first_item;
    unsigned pitch;
    int n_points, n_exprs, n_words, n_sets, max_params, n_here, max_words, n_slots, max_iter;
    int entries, results, sums, state, slots, warp_bytes, actives, rows, products;  // offsets in bytes
};

// ── numbers: parameters, constants and prologues ─────────────────────────────────────

struct Source { T value, low; T rate[TANGENTS]; unsigned active; };

// A number and its derivatives by the parameters ``first``, ``first + 1``, ...
INLINE Source find(const FitJob &job, int source, const double *params, const Result *results, int first, int first_result)
{
    const int index = source >> 2;
    Source found = {};
    if ((source & 3) == PARAMETER) {
        found.value = T(params[index]);
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) found.rate[t] = T(index == first + t);
        found.active = index >= first && index < first + TANGENTS ? 1u << (index - first) : 0;
    } else if ((source & 3) == CONSTANT) {
        found.value = job.constants[index];
    } else if ((source & 3) == RESULT) {
        const Result &result = results[index - first_result];
        found.value = result.value;
        found.low = result.low;
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) found.rate[t] = result.rate[t];
        found.active = result.active;
    }
    return found;
}

#if PROLOGUES
// One operator on single numbers, and its derivatives; ``from_a``, ``from_b``: whether tangents of an operand go on.
__device__ __noinline__ T scalar(int code, T a, T a_low, T b, T &y_low, T &da, T &db, bool &from_a, bool &from_b)
{
    T y = T(0);
    y_low = da = db = T(0);
    from_a = from_b = true;
    switch (code) {
    //{common scalar cases}
#if RARE
    //{rare scalar cases}
#endif
    }
    return y;
}

INLINE void run_prologue(const FitJob &job, int e, const double *params, Result *results, int first, int first_result)
{
    for (int s = job.first_step[e]; s < job.first_step[e + 1]; ++s) {
        const Step step = job.steps[s];
        const Source a = find(job, step.a, params, results, first, first_result);
        const Source b = find(job, step.b, params, results, first, first_result);
        T da, db;
        bool from_a, from_b;
        Result &result = results[(step.result >> 1) - first_result];
        result.value = scalar(step.code, a.value, a.low, b.value, result.low, da, db, from_a, from_b);
        const unsigned active_a = from_a ? a.active : 0, active_b = from_b ? b.active : 0;
        result.active = active_a | active_b;
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) {
            T rate = active_a >> t & 1 ? strong_product(da, a.rate[t]) : T(0);
            if (active_b >> t & 1) rate = with_strong_product(rate, db, b.rate[t]);
            result.rate[t] = rate;
        }
    }
}
#endif

// A word as it stands in the program: every thread keeps one of the first ones.
struct Origin { Word word; int source; };

struct Program {
    int start, n_words;
    Origin mine;

    INLINE Origin origin(const FitJob &job, int w) const
    {
        return w < BLOCK ? mine : Origin{job.words[start + w], job.sources[start + w]};
    }
};

INLINE Program program_of(const FitJob &job, int e)
{
    Program program;
    program.start = job.first_word[e];
    program.n_words = (e + 1 < job.n_exprs ? job.first_word[e + 1] : job.n_words) - program.start;
    const int own = program.start + min(int(threadIdx.x), program.n_words - 1);
    program.mine = Origin{job.words[own], job.sources[own]};
    return program;
}

// The entries of a program for these parameters, with the derivatives by ``first`` and the following ones.
INLINE void make_entries(
    const FitJob &job, int e, const Program &program, char *arena, const double *params, int first, Entry *entries)
{
    Result *results = reinterpret_cast<Result *>(arena + job.results);
    int first_result = 0;
#if PROLOGUES
    if (job.first_step[e] < job.first_step[e + 1]) {
        first_result = job.steps[job.first_step[e]].result >> 1;
        sync();
        if (threadIdx.x == 0) run_prologue(job, e, params, results, first, first_result);
        sync();
    }
#endif
#pragma unroll 1
    for (int w = threadIdx.x; w < program.n_words; w += BLOCK) {
        const Origin origin = program.origin(job, w);
        const Source number = find(job, origin.source, params, results, first, first_result);
        Entry entry;
        entry.action = origin.word.action | number.active << 4;
        entry.places = origin.word.places;
        entry.high = number.value;
        entry.low = number.low;
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) entry.rate[t] = number.rate[t];
        entries[w] = entry;
    }
}

// ── what the points add to the sums ──────────────────────────────────────────────────

// A point's share of the loss and, of the normal equations, its weight.
template <class S> struct Share { S loss, weight; };

template <class S> INLINE Share<S> share_of(T f, T y, T r, S w, S delta)
{
    const S size = fabs(S(r));
    switch (KIND) {
    case DEVIATIONS: return {w * size, w * S(0.5) / max(size, delta)};
    case HUBER: return size <= delta ? Share<S>{w * size * size, w}
                                     : Share<S>{w * (S(2) * size - delta) * delta, w * delta / size};
    case POISSON: {
        const double ratio = double(y) / double(f), entropy = y > T(0) ? double(y) * log(ratio) : 0.0;
        const double loss = f > T(0) ? 2.0 * (entropy - (double(y) - double(f))) : nan("");
        return {S(double(w) * loss), w / S(f)};
    }
    }
    return {w * S(r) * S(r), w};
}

template <class S> INLINE void add_point(S (&sum)[N_SUMS], const Dual &acc, int k, T y, T w, S delta)
{
    const T f = acc.value[k], r = f - y;
    if (TASK == GRADIENT) {
        const S slope = KIND == SQUARES ? S(2) * S(w) * S(r) : S(w) * S(sign_of(r));
        sum[0] += KIND == SQUARES ? S(w) * S(r) * S(r) : S(w) * fabs(S(r));
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) if (acc.has(t)) sum[1 + t] = fma(slope, S(acc.rate[t][k]), sum[1 + t]);
        return;
    }
    S scale = S(w);
    if (KIND == SQUARES && !WEIGHTED) {
        sum[0] = fma(S(r), S(r), sum[0]);
    } else {
        const Share<S> share = share_of<S>(f, y, r, S(w), delta);
        sum[0] += share.loss;
        scale = share.weight;
    }
    int s = 1 + TANGENTS;
#pragma unroll
    for (int t = 0; t < TANGENTS; ++t) {
        const S rate = KIND == SQUARES && !WEIGHTED ? S(acc.rate[t][k]) : scale * S(acc.rate[t][k]);
        sum[1 + t] = fma(rate, S(r), sum[1 + t]);
#pragma unroll
        for (int u = 0; u <= t; ++u, ++s) sum[s] = fma(rate, S(acc.rate[u][k]), sum[s]);
    }
}

// This lane's points from ``at`` on: their values of the target and weights, 0 where a point does not count.
struct Goal { Vector y[VECTORS], w[VECTORS]; };

INLINE Goal goal_at(const FitJob &job, int at)
{
    const int left = job.n_points - at;
    Goal goal;
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        goal.y[j] = vector_of(job.target + at, j);
        if (WEIGHTED) goal.w[j] = vector_of(job.weights + at, j);
#pragma unroll
        for (int k = 0; k < WIDTH && !WEIGHTED; ++k) goal.w[j].at[k] = T(j * CHUNK + k < left);
    }
    return goal;
}

template <class S> INLINE void add_points(const FitJob &job, const Dual &acc, const Goal &goal, S (&sum)[N_SUMS])
{
#pragma unroll
    for (int k = 0; k < POINTS; ++k) {
        const T w = goal.w[k / WIDTH].at[k % WIDTH];
        if (w != T(0)) add_point<S>(sum, acc, k, goal.y[k / WIDTH].at[k % WIDTH], w, S(job.delta));
    }
}

// Whether no sum went out of the range of T.
INLINE bool in_range(const T (&sum)[N_SUMS])
{
    T all = fabs(sum[0]);
    if (TASK == GRADIENT) {
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) all += fabs(sum[1 + t]);
    } else {
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) all += sum[1 + TANGENTS + t * (t + 3) / 2];
    }
    return all <= T(LARGEST);
}

// Whether no derivative's sum is nan; a fit does not ask where the loss is not finite.
template <class S> INLINE bool are_known(const S (&sum)[N_SUMS])
{
    bool known = true;
#pragma unroll
    for (int t = 0; t < TANGENTS; ++t) {
        const S slope = sum[TASK == GRADIENT ? 1 + t : 1 + TANGENTS + t * (t + 3) / 2];
        known = known && slope == slope;
    }
    return known || (TASK == FIT && !(fabs(sum[0]) <= S(LARGEST)));
}

INLINE bool all_lanes(bool yes) { return __all_sync(0xffffffffu, yes); }

// This thread's sums over its points.  They are made in T over FOLD tiles; where that overflows, once more in float64.
// Where a derivative is nan, all is made once more with strong zeros, and so are the sums that follow: ``strong``.
INLINE void sum_points(
    const FitJob &job, const Frame &frame, const Entry *entries, double (&sum)[N_SUMS], bool &strong)
{
    const int lane = threadIdx.x % LANES * WIDTH, first = threadIdx.x / LANES * TILE;
    T part[N_SUMS];
#pragma unroll
    for (int s = 0; s < N_SUMS; ++s) sum[s] = 0.0, part[s] = T(0);
    bool wide = false;
    for (int tile = first, start = first, n_tiles = 0; tile < job.n_points;) {
        Dual acc;
        if (strong) run_strongly(frame.at(tile + lane), entries, acc);
        else Operators<false>::run(frame.at(tile + lane), entries, acc);
        const Goal goal = goal_at(job, tile + lane);
        if (wide) add_points<double>(job, acc, goal, sum);
        else add_points<T>(job, acc, goal, part);
        tile += WARPS * TILE;
        if (++n_tiles < FOLD && tile < job.n_points) continue;
        n_tiles = 0;
        const bool sound = all_lanes(wide ? are_known(sum) : in_range(part));
        if (!sound && !strong && !all_lanes(wide ? are_known(sum) : are_known(part))) {
            strong = true;
            wide = false;
            tile = start = first;
#pragma unroll
            for (int s = 0; s < N_SUMS; ++s) sum[s] = 0.0;
        } else if (!sound && !wide && sizeof(T) == 4) {
            wide = true;
            tile = start;
        } else {
#pragma unroll
            for (int s = 0; s < N_SUMS; ++s) if (!wide) sum[s] += double(part[s]);
            start = tile;
            if (TASK == FIT && !all_lanes(is_finite(sum[0]))) break;  // no step that could be taken
        }
#pragma unroll
        for (int s = 0; s < N_SUMS; ++s) part[s] = T(0);
    }
}

// The same over all threads, into ``total`` in the block's memory.
INLINE void add_threads(double (&sum)[N_SUMS], double *scratch, double *total)
{
#pragma unroll
    for (int s = 0; s < N_SUMS; ++s)
        for (int step = LANES / 2; step > 0; step /= 2) sum[s] += __shfl_xor_sync(0xffffffffu, sum[s], step);
    if (threadIdx.x % LANES == 0) {
        double *mine = WARPS > 1 ? scratch + threadIdx.x / LANES * N_SUMS : total;
#pragma unroll
        for (int s = 0; s < N_SUMS; ++s) mine[s] = sum[s];
    }
    sync();
    if (WARPS == 1) return;
    for (int s = threadIdx.x; s < N_SUMS; s += BLOCK) {
        double all = 0.0;
        for (int w = 0; w < WARPS; ++w) all += scratch[w * N_SUMS + s];
        total[s] = all;
    }
    sync();
}

// ── more parameters than tangents ────────────────────────────────────────────────────

// J of a warp's points stands in its memory, a row a parameter and one for r, each times the root of the weight; the
// products of the rows are shared out over the lanes.
struct Rows {
    T *at;             // (n + 1, ROW)
    double *products;  // loss, J'r and J'J of this warp
    int n;

    INLINE void write(const Dual &acc, const Goal &goal, int first, T delta, double &loss) const
    {
        const int lane = threadIdx.x % LANES * WIDTH;
#pragma unroll
        for (int k = 0; k < POINTS; ++k) {
            const int point = k / WIDTH * CHUNK + lane + k % WIDTH;
            const T w = goal.w[k / WIDTH].at[k % WIDTH], y = goal.y[k / WIDTH].at[k % WIDTH], r = acc.value[k] - y;
            double scale = 0.0;
            if (w != T(0)) {
                const Share<double> share = share_of<double>(acc.value[k], y, r, w, delta);
                scale = sqrt(share.weight);
                if (first == 0) loss += share.loss;
            }
#pragma unroll
            for (int t = 0; t < TANGENTS; ++t)
                if (first + t < n) at[(first + t) * ROW + point] = scale == 0.0 ? T(0) : T(scale * acc.rate[t][k]);
            if (first == 0) at[n * ROW + point] = scale == 0.0 ? T(0) : T(scale * r);
        }
    }

    INLINE void add_products() const
    {
        const int n_triangle = n * (n + 1) / 2;
        for (int p = threadIdx.x % LANES; p < n_triangle + n; p += LANES) {
            int i = n, j = p - n_triangle;
            if (j < 0)
                for (i = 0, j = p; j > i; ++i) j -= i + 1;
            products[p < n_triangle ? 1 + n + p : 1 + j] += product(at + i * ROW, at + j * ROW);
        }
    }

    INLINE double product(const T *left, const T *right) const
    {
        T sum = T(0);
        for (int point = 0; point < TILE; point += WIDTH) {
            const Vector a = *reinterpret_cast<const Vector *>(left + point);
            const Vector b = *reinterpret_cast<const Vector *>(right + point);
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) sum = fma(a.at[k], b.at[k], sum);
        }
        double all = double(sum);
        if (!(fabs(sum) <= T(LARGEST))) {
            all = 0.0;
            for (int point = 0; point < TILE; ++point) all = fma(double(left[point]), double(right[point]), all);
        }
        return all;
    }
};

// Sums over all points by way of rows; ``entries`` holds the programs of all groups of parameters, one after the other.
// Where they are nan, a warp makes them once more with strong zeros, and so the sums that follow: ``strong``.
INLINE void sum_rows(
    const FitJob &job, const Frame &frame, char *arena, const Entry *entries, int n, double *total, bool &strong)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, n_sums = 1 + n + n * (n + 1) / 2;
    char *own = arena + job.slots + warp * job.warp_bytes;
    const Rows rows = {reinterpret_cast<T *>(own + job.rows), reinterpret_cast<double *>(own + job.products), n};
    double loss;
    while (true) {
        loss = 0.0;
        for (int s = lane; s < n_sums; s += LANES) rows.products[s] = 0.0;
        for (int tile = warp * TILE; tile < job.n_points; tile += WARPS * TILE) {
            const int at = tile + lane * WIDTH;
            const Goal goal = goal_at(job, at);
            for (int first = 0; first < n; first += TANGENTS) {
                const Entry *group = entries + first / TANGENTS * job.max_words;
                Dual acc;
                if (strong) run_strongly(frame.at(at), group, acc);
                else Operators<false>::run(frame.at(at), group, acc);
                rows.write(acc, goal, first, T(job.delta), loss);
            }
            __syncwarp();
            rows.add_products();
            __syncwarp();
        }
        bool known = true;
        for (int s = lane; s < n_sums; s += LANES) known = known && rows.products[s] == rows.products[s];
        if (strong || all_lanes(known)) break;
        strong = true;
    }
    for (int step = LANES / 2; step > 0; step /= 2) loss += __shfl_xor_sync(0xffffffffu, loss, step);
    if (lane == 0) rows.products[0] = loss;
    sync();
    for (int s = threadIdx.x; s < n_sums; s += BLOCK) {
        double all = 0.0;
        for (int w = 0; w < WARPS; ++w)
            all += *reinterpret_cast<double *>(arena + job.slots + w * job.warp_bytes + job.products + 8 * s);
        total[s] = all;
    }
    sync();
}
