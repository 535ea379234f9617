// Loss, J'r and J'J of one expression at one point in parameter space, by one block.
//
// The second of three texts (tangents.cu says which).  Makes a program's entries for the parameters, runs it over
// the block's points and adds up what they give: in T over FOLD tiles of a thread, then in float64.
//
//     arena     a block's memory, shared or (where that is too little) global; the host makes the
//               offsets (derivatives.py): entries, results of the prologue, sums of the warps, state of
//               the fit, then each warp's slots, their ``active``, and (MANY) rows and products
//     entries   an instruction with its immediate and the immediate's derivatives
//     sums      loss, J'r (n), J'J (n (n + 1) / 2 by rows of the lower triangle)
//
// The host defines, besides the macros of tangents.cu:
//
//     TASK          NORMAL, GRADIENT, JACOBIAN or FIT         KIND      SQUARES, ABSOLUTE, HUBER or POISSON
//     MANY          1: more than 4 parameters                 FOLD      tiles whose sums are made in T
//     PROLOGUES     1 where programs have prologues           WEIGHTED  1 where points have weights
//     RESULT_BYTES  the size of a prologue's result

//{fit tasks}
//{kinds}

constexpr int N_SUMS = TASK == GRADIENT ? 1 + TANGENTS : 1 + TANGENTS + TANGENTS * (TANGENTS + 1) / 2;
constexpr int ROW = TILE + WIDTH;         // of J at the points of a warp; apart by an odd number of vectors

struct __align__(8) Result { T value, low, tangent[4]; unsigned active; };  // of a prologue
static_assert(sizeof(Result) == RESULT_BYTES, "the host and the kernel disagree about a result");

//{FitArguments}

// ── immediates: parameters, constants and prologues ────────────────────────────────────

struct Source { T value, low; T tangent[TANGENTS]; unsigned active; };

// A number and its derivatives by the parameters ``first``, ``first + 1``, ...
INLINE Source find(const FitArguments &args, int source, const double *params, const Result *results, int first, int first_result)
{
    const int index = source >> SOURCE_SHIFT;
    Source found = {};
    if ((source & SOURCE_KIND) == PARAMETER) {
        found.value = T(params[index]);
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) found.tangent[t] = T(index == first + t);
        found.active = index >= first && index < first + TANGENTS ? 1u << (index - first) : 0;
    } else if ((source & SOURCE_KIND) == CONSTANT) {
        found.value = args.constants[index];
    } else if ((source & SOURCE_KIND) == RESULT) {
        const Result &result = results[index - first_result];
        found.value = result.value;
        found.low = result.low;
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) found.tangent[t] = result.tangent[t];
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
    default: {
        Vector all_a, all_b;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) all_a.at[k] = a, all_b.at[k] = b;
        const Made made = called(code, all_a, all_b, 3u, true);
        y = made.y.at[0];
        da = made.da.at[0];
        db = made.db.at[0];
        from_a = made.has_slope & 1;
        from_b = made.has_slope & 2;
    }
#endif
    }
    return y;
}

#if RARE && defined(OF_THREE)
INLINE Vector all_of(T number)
{
    Vector v;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) v.at[k] = number;
    return v;
}

// A function of three operands of single numbers: a and b, packed, and c.
__device__ __noinline__ void scalar_of_three(int code, const Source &a, const Source &b, const Source &c, Result &result)
{
    const MadeOfThree made = called_of_three(code, all_of(a.value), all_of(b.value), all_of(c.value), 7u);
    const Source *const from[] = {&a, &b, &c};
    result.value = made.y.at[0];
    result.low = T(0);
    result.active = 0;
    for (int t = 0; t < TANGENTS; ++t) result.tangent[t] = T(0);
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        if (!(made.has_slope >> k & 1)) continue;
        result.active |= from[k]->active;
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t)
            result.tangent[t] = with_strong_product(result.tangent[t], made.by[k].at[0], from[k]->tangent[t]);
    }
}

// Operands side by side: results one behind the other.
INLINE void pack(const Source &number, Result &result)
{
    result.value = number.value;
    result.low = T(0);
    result.active = number.active;
#pragma unroll
    for (int t = 0; t < TANGENTS; ++t) result.tangent[t] = number.tangent[t];
}
#endif

INLINE void run_prologue(const FitArguments &args, int e, const double *params, Result *results, int first, int first_result)
{
    for (int s = args.first_step[e]; s < args.first_step[e + 1]; ++s) {
        const Step step = args.steps[s];
        const Source a = find(args, step.a, params, results, first, first_result);
        const Source b = find(args, step.b, params, results, first, first_result);
        Result &result = results[(step.result >> 1) - first_result];
#if RARE && defined(OF_THREE)
        if (step.code == PAIR_OF) {
            pack(a, result);
            pack(b, (&result)[1]);
            continue;
        }
        if (is_of_three(step.code)) {
            const Source second = find(args, step.a + (1 << SOURCE_SHIFT), params, results, first, first_result);
            scalar_of_three(step.code, a, second, b, result);
            continue;
        }
#endif
        T da, db;
        bool from_a, from_b;
        result.value = scalar(step.code, a.value, a.low, b.value, result.low, da, db, from_a, from_b);
        const unsigned active_a = from_a ? a.active : 0, active_b = from_b ? b.active : 0;
        result.active = active_a | active_b;
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) {
            T tangent = active_a >> t & 1 ? strong_product(da, a.tangent[t]) : T(0);
            if (active_b >> t & 1) tangent = with_strong_product(tangent, db, b.tangent[t]);
            result.tangent[t] = tangent;
        }
    }
}
#endif

// An instruction as it stands in the program: every thread keeps one of the first ones.
struct Origin { Instruction instruction; int source; };

struct Program {
    int start, n_instructions;
    Origin mine;

    INLINE Origin origin(const FitArguments &args, int w) const
    {
        return w < BLOCK ? mine : Origin{args.instructions[start + w], args.sources[start + w]};
    }
};

INLINE Program program_of(const FitArguments &args, int e)
{
    Program program;
    program.start = args.first_instruction[e];
    program.n_instructions = (e + 1 < args.n_exprs ? args.first_instruction[e + 1] : args.n_instructions) - program.start;
    const int own = program.start + min(thread(), program.n_instructions - 1);
    program.mine = Origin{args.instructions[own], args.sources[own]};
    return program;
}

// The entries of a program for these parameters, with the derivatives by ``first`` and the following ones.
INLINE void make_entries(
    const FitArguments &args, int e, const Program &program, char *arena, const double *params, int first, Entry *entries)
{
    Result *results = reinterpret_cast<Result *>(arena + args.results);
    int first_result = 0;
#if PROLOGUES
    if (args.first_step[e] < args.first_step[e + 1]) {
        first_result = args.steps[args.first_step[e]].result >> 1;
        sync();
        if (thread() == 0) run_prologue(args, e, params, results, first, first_result);
        sync();
    }
#endif
#pragma unroll 1
    for (int w = thread(); w < program.n_instructions; w += BLOCK) {
        const Origin origin = program.origin(args, w);
        const Source immediate = find(args, origin.source, params, results, first, first_result);
        Entry entry;
        entry.action = origin.instruction.action | immediate.active << ACTIVE_SHIFT;
        entry.places = origin.instruction.places;
        entry.high = immediate.value;
        entry.low = immediate.low;
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) entry.tangent[t] = immediate.tangent[t];
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
    case ABSOLUTE: return {w * size, w * S(0.5) / max(size, delta)};
    case HUBER: return size <= delta ? Share<S>{w * size * size, w}
                                     : Share<S>{w * (S(2) * size - delta) * delta, w * delta / size};
    case POISSON: {
        const double ratio = double(y) / double(f), entropy = y > T(0) ? double(y) * log(ratio) : 0.0;
        const double loss = f >= T(0) ? 2.0 * (entropy - (double(y) - double(f))) : nan("");
        return {S(double(w) * loss), f == T(0) ? S(0) : w / S(f)};
    }
    }
    return {w * S(r) * S(r), w};
}

template <class S> INLINE void add_point(S (&sum)[N_SUMS], const Dual &acc, int k, T y, T w, S delta)
{
    const T f = acc.value[k], r = f - y;
    if (TASK == GRADIENT) {
        const S slope = KIND == SQUARES ? S(2) * S(w) * S(r) : KIND == SUM ? S(w) : S(w) * S(sign_of(r));
        sum[0] += KIND == SQUARES ? S(w) * S(r) * S(r) : S(w) * (KIND == SUM ? S(r) : fabs(S(r)));
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) if (acc.has(t)) sum[1 + t] = fma(slope, S(acc.tangent[t][k]), sum[1 + t]);
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
        const S tangent = KIND == SQUARES && !WEIGHTED ? S(acc.tangent[t][k]) : scale * S(acc.tangent[t][k]);
        sum[1 + t] = fma(tangent, S(r), sum[1 + t]);
#pragma unroll
        for (int u = 0; u <= t; ++u, ++s) sum[s] = fma(tangent, S(acc.tangent[u][k]), sum[s]);
    }
}

// This lane's points from ``at`` on: their values of the target and weights, 0 where a point does not count.
struct Goal { Vector y[VECTORS], w[VECTORS]; };

INLINE Goal goal_at(const FitArguments &args, int at)
{
    const int left = args.n_points - at;
    Goal goal;
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        goal.y[j] = vector_of(args.target + at, j);
        if (WEIGHTED) goal.w[j] = vector_of(args.weights + at, j);
#pragma unroll
        for (int k = 0; k < WIDTH && !WEIGHTED; ++k) goal.w[j].at[k] = T(j * SEGMENT + k < left);
    }
    return goal;
}

template <class S> INLINE void add_points(const FitArguments &args, const Dual &acc, const Goal &goal, S (&sum)[N_SUMS])
{
#pragma unroll
    for (int k = 0; k < POINTS; ++k) {
        const T w = goal.w[k / WIDTH].at[k % WIDTH];
        if (w != T(0)) add_point<S>(sum, acc, k, goal.y[k / WIDTH].at[k % WIDTH], w, S(args.delta));
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

// Whether the sum over the lanes is more than that, by more than its rounding.
INLINE bool lanes_exceed(T sum, double most)
{
    for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    return double(sum) > most * (1.0 + 1e-4) && sum <= T(LARGEST);
}

// This thread's sums over its points.  They are made in T over FOLD tiles; where that overflows, once more in float64.
// Where a derivative is nan, all is made once more with strong zeros, and so are the sums that follow: ``strong``.
// A warp whose loss is above ``most`` before its last tile leaves the rest: a step that is not taken.
INLINE void sum_points(
    const FitArguments &args, const Frame &frame, const Entry *entries, double (&sum)[N_SUMS], bool &strong, double most)
{
    const int lane = thread() % LANES * WIDTH, first = thread() / LANES * TILE;
    T part[N_SUMS];
#pragma unroll
    for (int s = 0; s < N_SUMS; ++s) sum[s] = 0.0, part[s] = T(0);
    bool wide = false;
    for (int tile = first, start = first, n_tiles = 0; tile < args.n_points;) {
        Dual acc;
        if (strong) run_strongly(frame.at(tile + lane), entries, acc);
        else Operators<false>::run(frame.at(tile + lane), entries, acc);
        const Goal goal = goal_at(args, tile + lane);
        if (wide) add_points<double>(args, acc, goal, sum);
        else add_points<T>(args, acc, goal, part);
        tile += WARPS * TILE;
        if (TASK == FIT && tile < args.n_points && lanes_exceed(T(sum[0]) + part[0], most)) {
            sum[0] += double(part[0]);
            break;
        }
        if (++n_tiles < FOLD && tile < args.n_points) continue;
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
    if (thread() % LANES == 0) {
        double *mine = WARPS > 1 ? scratch + thread() / LANES * N_SUMS : total;
#pragma unroll
        for (int s = 0; s < N_SUMS; ++s) mine[s] = sum[s];
    }
    sync();
    if (WARPS == 1) return;
    for (int s = thread(); s < N_SUMS; s += BLOCK) {
        double all = 0.0;
        for (int w = 0; w < WARPS; ++w) all += scratch[w * N_SUMS + s];
        total[s] = all;
    }
    sync();
}

// ── more parameters than tangents ────────────────────────────────────────────────────

// J of a warp's points stands in its memory, a row per parameter and one for r, each times the root of the weight; the
// products of the rows are shared out over the lanes.
struct Rows {
    T *at;             // (n + 1, ROW)
    double *products;  // loss, J'r and J'J of this warp
    int n;

    INLINE void write(const Dual &acc, const Goal &goal, int first, T delta, double &loss) const
    {
        const int lane = thread() % LANES * WIDTH;
#pragma unroll
        for (int k = 0; k < POINTS; ++k) {
            const int point = k / WIDTH * SEGMENT + lane + k % WIDTH;
            const T w = goal.w[k / WIDTH].at[k % WIDTH], y = goal.y[k / WIDTH].at[k % WIDTH], r = acc.value[k] - y;
            double scale = 0.0;
            if (w != T(0)) {
                const Share<double> share = share_of<double>(acc.value[k], y, r, w, delta);
                scale = sqrt(share.weight);
                if (first == 0) loss += share.loss;
            }
#pragma unroll
            for (int t = 0; t < TANGENTS; ++t)
                if (first + t < n) at[(first + t) * ROW + point] = scale == 0.0 ? T(0) : T(scale * acc.tangent[t][k]);
            if (first == 0) at[n * ROW + point] = scale == 0.0 ? T(0) : T(scale * r);
        }
    }

    INLINE void add_products() const
    {
        const int n_triangle = n * (n + 1) / 2;
        for (int p = thread() % LANES; p < n_triangle + n; p += LANES) {
            int i = n, j = p - n_triangle;
            if (j < 0)
                for (i = 0, j = p; j > i; ++i) j -= i + 1;
            products[p < n_triangle ? 1 + n + p : 1 + j] += product(at + i * ROW, at + j * ROW);
        }
    }

    INLINE double product(const T *left, const T *right) const
    {
        T sum = T(0);
#pragma unroll 8  // whole, its loads from global memory would take all registers
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
    const FitArguments &args, const Frame &frame, char *arena, const Entry *entries, int n, double *total, bool &strong)
{
    const int lane = thread() % LANES, warp = thread() / LANES, n_sums = 1 + n + n * (n + 1) / 2;
    char *own = arena + args.slots + warp * args.warp_bytes;
    const Rows rows = {reinterpret_cast<T *>(own + args.rows), reinterpret_cast<double *>(own + args.products), n};
    double loss;
    while (true) {
        loss = 0.0;
        for (int s = lane; s < n_sums; s += LANES) rows.products[s] = 0.0;
        for (int tile = warp * TILE; tile < args.n_points; tile += WARPS * TILE) {
            const int at = tile + lane * WIDTH;
            const Goal goal = goal_at(args, at);
            for (int first = 0; first < n; first += TANGENTS) {
                const Entry *group = entries + first / TANGENTS * args.max_instructions;
                Dual acc;
                if (strong) run_strongly(frame.at(at), group, acc);
                else Operators<false>::run(frame.at(at), group, acc);
                rows.write(acc, goal, first, T(args.delta), loss);
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
    for (int s = thread(); s < n_sums; s += BLOCK) {
        double all = 0.0;
        for (int w = 0; w < WARPS; ++w)
            all += *reinterpret_cast<double *>(arena + args.slots + w * args.warp_bytes + args.products + 8 * s);
        total[s] = all;
    }
    sync();
}
