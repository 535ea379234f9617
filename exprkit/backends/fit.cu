// Derivatives and fits on the GPU: the whole parameter optimisation of an expression in one block.
//
// What is computed, plainly:
//
//     for every expression and start, a block:
//         parameters = the start
//         repeat:
//             for TILE points, a warp:                               (POINTS points a thread)
//                 run the program on values with TANGENTS tangents   (d value / d parameter)
//                 add the points' shares of loss, J'r and J'J to the thread's sums
//             add up over threads and warps, in float64
//             one thread: was it a good step? then the next step's parameters (Levenberg-Marquardt)
//
// One evaluation an iteration serves as the trial of a step and as the normal equations of the next.
// TASK: NORMAL, GRADIENT and JACOBIAN stop behind the first evaluation and hand over what they have.
//
// This text stands behind the arithmetic of interpreter.cu and reads the same programs: words with
// an accumulator.  A value that does not depend on a parameter has no tangent for it, and what an
// operator's derivative is there (perhaps inf) does not matter; ``active`` has a bit for each tangent
// that counts.  Values have the type T, the algebra of a step is float64.
//
//     arena     a block's memory, shared or (where that is too little) global; the host makes the
//               offsets (cuda_fit.py): entries, results of the prologue, sums of the warps, state of
//               the fit, then each warp's slots, their ``active``, and (MANY) rows and products
//     entries   a word with its number and the number's derivatives
//     sums      loss, J'r (n), J'J (n (n + 1) / 2 by rows of the lower triangle)
//
// The host defines, besides the macros of interpreter.cu:
//
//     TASK          NORMAL, GRADIENT, JACOBIAN or FIT         KIND      SQUARES, DEVIATIONS, HUBER or POISSON
//     TANGENTS      1 to 4                                    MANY      1: more than 4 parameters
//     ENTRY_BYTES, RESULT_BYTES  sizes of these               FOLD      tiles whose sums are made in T
//     PROLOGUES     1 where programs have prologues           RARE      1 where uncommon operators are used
//     GLOBAL_ARENA  1 where shared memory is too little
//     FIRST_DAMPING, FADING, MOST_DAMPING, EXACT_DAMPING      as in objective.py

enum { NORMAL, GRADIENT, JACOBIAN, FIT };
enum { SQUARES, DEVIATIONS, HUBER, POISSON };
enum { FTOL, XTOL, GTOL, MAX_ITER, STUCK, NOT_FINITE, RUNNING = 255 };  // why a fit ended, as in objective.py
enum { AT_START, AT_LINEAR_STEP, AT_STEP };                             // what the latest evaluation was

constexpr int N_SUMS = TASK == GRADIENT ? 1 + TANGENTS : 1 + TANGENTS + TANGENTS * (TANGENTS + 1) / 2;
constexpr int ROW = TILE + WIDTH;         // of J at the points of a warp; apart by an odd number of vectors
constexpr double MOST = 1.7976931348623157e308;

struct __align__(16) Entry { unsigned action, places; T high, low; T rate[TANGENTS + TANGENTS % 2]; };
static_assert(sizeof(Entry) == ENTRY_BYTES, "the host and the kernel disagree about an entry");
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

// ── approximations ───────────────────────────────────────────────────────────────────

// A derivative divides by what its value divides by: as a product with the reciprocal the two share the latter.
INLINE double shared_quotient(double a, double b) { return a / b; }
INLINE float shared_quotient(float a, float b) { return APPROXIMATE_DIVISION ? a * approximate_reciprocal(b) : a / b; }
#define quotient shared_quotient

#ifndef EMULATED
INLINE double approximate_inverse(double a)
{
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(a));
    return y;
}
#endif
// 1 / a but for the last place or two; nan for 0, inf and subnormals.
INLINE double inverse(double a)
{
    double y = approximate_inverse(a);
    y = fma(fma(-a, y, 1.0), y, y);
    return fma(fma(-a, y, 1.0), y, y);
}

INLINE bool is_finite(double a) { return fabs(a) <= MOST; }
INLINE void sync() { if (WARPS > 1) __syncthreads(); else __syncwarp(); }

// ── values with tangents ─────────────────────────────────────────────────────────────

// The accumulator: POINTS values and their derivatives; a rate that is not active is 0.
struct Dual {
    T value[POINTS], rate[TANGENTS][POINTS];
    unsigned active;

    INLINE bool has(int t) const { return active >> t & 1; }
};

// Where this lane finds the operands of its points.
struct Frame {
    const T *columns;
    Vector *slots;
    unsigned *actives;
    unsigned pitch;

    INLINE const T *column(unsigned index) const { return columns + (unsigned long long)(index) * pitch; }
    INLINE Frame at(int point) const { return Frame{columns + point, slots, actives, pitch}; }
};

INLINE unsigned active_of(const Entry &now) { return now.action >> 4 & 15u; }
INLINE Vector vector_of(const T *column, int j) { return *reinterpret_cast<const Vector *>(column + j * CHUNK); }

// A part (value, or one tangent) of a slot.
INLINE Vector *part_of(Vector *slot, int part, int j) { return slot + (part * VECTORS + j) * LANES; }

INLINE Vector *slot_of(const Frame &frame, unsigned index) { return frame.slots + index * (1 + TANGENTS) * VECTORS * LANES; }

INLINE void load(Dual &acc, const T *column)
{
    acc.active = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const Vector v = vector_of(column, j);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) acc.value[j * WIDTH + k] = v.at[k];
    }
#pragma unroll
    for (int t = 0; t < TANGENTS; ++t)
#pragma unroll
        for (int k = 0; k < POINTS; ++k) acc.rate[t][k] = T(0);
}

INLINE void spill(const Dual &acc, const Frame &frame, unsigned index)
{
    Vector *slot = slot_of(frame, index);
    frame.actives[index * LANES] = acc.active;
#pragma unroll
    for (int part = 0; part <= TANGENTS; ++part)
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) {
            Vector v;
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) v.at[k] = part ? acc.rate[part ? part - 1 : 0][j * WIDTH + k] : acc.value[j * WIDTH + k];
            *part_of(slot, part, j) = v;
        }
}

// The chain rule for the accumulator's own tangents.  The compiler would compute and then choose; it shall branch.
INLINE void chain(Dual &acc, const T (&da)[POINTS])
{
#pragma unroll
    for (int t = 0; t < TANGENTS; ++t) {
        if (!acc.has(t)) continue;
        asm volatile("");
#pragma unroll
        for (int k = 0; k < POINTS; ++k) acc.rate[t][k] *= da[k];
    }
}

// acc = f(acc)
template <class F> INLINE void alone(Dual &acc, F f)
{
    T da[POINTS];
#pragma unroll
    for (int k = 0; k < POINTS; ++k) acc.value[k] = f(acc.value[k], da[k]);
    chain(acc, da);
}

// acc = number
INLINE void from_number(Dual &acc, const Entry &now)
{
    acc.active = active_of(now);
#pragma unroll
    for (int k = 0; k < POINTS; ++k) {
        acc.value[k] = now.high;
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) acc.rate[t][k] = now.rate[t];
    }
}

// acc = f(acc, number)
template <class F> INLINE void with_number(Dual &acc, const Entry &now, F f)
{
    const unsigned active = active_of(now);
    T da[POINTS], db[POINTS];
#pragma unroll
    for (int k = 0; k < POINTS; ++k) acc.value[k] = f(acc.value[k], now.high, da[k], db[k]);
    chain(acc, da);
#pragma unroll
    for (int t = 0; t < TANGENTS; ++t) {
        if (!(active >> t & 1)) continue;
        asm volatile("");
#pragma unroll
        for (int k = 0; k < POINTS; ++k) acc.rate[t][k] = fma(db[k], now.rate[t], acc.rate[t][k]);
    }
    acc.active |= active;
}

// acc = f(acc, column)
template <class F> INLINE void with_column(Dual &acc, const T *column, F f)
{
    T da[POINTS], db;
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const Vector b = vector_of(column, j);
#pragma unroll
        for (int k = j * WIDTH; k < (j + 1) * WIDTH; ++k) acc.value[k] = f(acc.value[k], b.at[k % WIDTH], da[k], db);
    }
    chain(acc, da);
}

// acc = f(acc, slot)
template <class F> INLINE void with_slot(Dual &acc, const Frame &frame, unsigned index, F f)
{
    Vector *slot = slot_of(frame, index);
    const unsigned active = frame.actives[index * LANES];
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const Vector b = *part_of(slot, 0, j);
        T da[WIDTH], db[WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) acc.value[j * WIDTH + k] = f(acc.value[j * WIDTH + k], b.at[k], da[k], db[k]);
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) {
            const Vector rate = *part_of(slot, 1 + t, j);
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) {
                T &mine = acc.rate[t][j * WIDTH + k];
                if (acc.has(t)) mine *= da[k];
                if (active >> t & 1) mine = fma(db[k], rate.at[k], mine);
            }
        }
    }
    acc.active |= active;
}

// acc = f(acc, column or slot)
template <class F> INLINE void with_memory(Dual &acc, const Frame &frame, const Entry &now, F f)
{
    const unsigned index = now.places & 0xffffu;
    if (now.action & SLOT) with_slot(acc, frame, index, f);
    else with_column(acc, frame.column(index), f);
}

// acc = f(acc, pair of columns)
template <class F> INLINE void with_pair(Dual &acc, const Frame &frame, const Entry &now, F f)
{
    const T *high = frame.column(now.places & 0xffffu), *low = high + frame.pitch;
    T da[POINTS], db;
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const Vector a = vector_of(high, j), a_low = PAIRS ? vector_of(low, j) : a;
#pragma unroll
        for (int k = j * WIDTH; k < (j + 1) * WIDTH; ++k)
            acc.value[k] = f(acc.value[k], a.at[k % WIDTH], a_low.at[k % WIDTH], da[k], db);
    }
    chain(acc, da);
}

// Move all points up by one vector; ``y`` becomes the last.
INLINE void shift_in(T (&all)[POINTS], const T (&y)[WIDTH])
{
#pragma unroll
    for (int k = 0; k < POINTS - WIDTH; ++k) all[k] = all[k + WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) all[POINTS - WIDTH + k] = y[k];
}

// Operators of long code: it stands there once for WIDTH points, and the accumulator goes round.
template <class F> INLINE void go_round(Dual &acc, F f)
{
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        T y[WIDTH], da[WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) y[k] = f(acc.value[k], da[k]);
        shift_in(acc.value, y);
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) {
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) y[k] = acc.has(t) ? acc.rate[t][k] * da[k] : T(0);
            shift_in(acc.rate[t], y);
        }
    }
}

// The other operand of such an operator: WIDTH points of it and their tangents.
struct Other { Vector value, rate[TANGENTS]; unsigned active; };

INLINE Other number_of(const Entry &now)
{
    Other other;
    other.active = active_of(now);
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
        other.value.at[k] = now.high;
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) other.rate[t].at[k] = now.rate[t];
    }
    return other;
}

INLINE Other operand_of(const Frame &frame, const Entry &now, int j)
{
    const unsigned index = now.places & 0xffffu;
    Other other;
    if (now.action & SLOT) {
        Vector *slot = slot_of(frame, index);
        other.active = frame.actives[index * LANES];
        other.value = *part_of(slot, 0, j);
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) other.rate[t] = *part_of(slot, 1 + t, j);
    } else {
        other.active = 0;
        other.value = vector_of(frame.column(index), j);
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t)
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) other.rate[t].at[k] = T(0);
    }
    return other;
}

// Take in WIDTH results with their derivatives by the accumulator (da) and by the other operand (db).
INLINE void take(Dual &acc, const Other &other, const T (&y)[WIDTH], const T (&da)[WIDTH], const T (&db)[WIDTH])
{
    shift_in(acc.value, y);
#pragma unroll
    for (int t = 0; t < TANGENTS; ++t) {
        T rate[WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            rate[k] = acc.has(t) ? acc.rate[t][k] * da[k] : T(0);
            if (other.active >> t & 1) rate[k] = fma(db[k], other.rate[t].at[k], rate[k]);
        }
        shift_in(acc.rate[t], rate);
    }
}

template <class F> INLINE void go_round(Dual &acc, int form, const Frame &frame, const Entry &now, F f)
{
    const bool first = form & 1, is_number = form & 2;
    unsigned active = 0;
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        const Other other = is_number ? number_of(now) : operand_of(frame, now, j);
        const bool mine = acc.active, its = other.active;
        T y[WIDTH], da[WIDTH], db[WIDTH];
        active = other.active;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const T left = first ? other.value.at[k] : acc.value[k], right = first ? acc.value[k] : other.value.at[k];
            T d_left = T(0), d_right = T(0);
            y[k] = f(left, right, first ? its : mine, first ? mine : its, d_left, d_right);
            da[k] = first ? d_right : d_left;
            db[k] = first ? d_left : d_right;
        }
        take(acc, other, y, da, db);
    }
    acc.active |= active;
}

// The same for operators that take a pair: its columns (form 0) or numbers (1) with the accumulator, or columns
// with a number (2).
template <class F> INLINE void go_round_pair(Dual &acc, int form, const Frame &frame, const Entry &now, F f)
{
    const T *high = frame.column(now.places & 0xffffu), *low = high + frame.pitch;
    if (form == 2) from_number(acc, now);
    Other other = number_of(now);
    if (form != 1) other.active = 0;
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        Vector a_low;
        if (form != 1) {
            other.value = vector_of(high, j);
            a_low = vector_of(low, j);
        } else {
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) a_low.at[k] = now.low;
        }
        T y[WIDTH], da[WIDTH], db[WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) y[k] = f(acc.value[k], other.value.at[k], a_low.at[k], da[k], db[k]);
        take(acc, other, y, da, db);
    }
    acc.active |= other.active;
}

// Run a program on this thread's points.
INLINE void run(const Frame &frame, const Entry *entries, Dual &acc)
{
    Entry next = *entries;
    acc.active = 0;
    while (true) {
        const Entry now = next;
        if (!(now.action & END)) next = *++entries;
        if (now.action & SPILL) spill(acc, frame, now.action >> 8 & 0xffu);
        if (now.action & LOAD) load(acc, frame.column(now.places >> 16));
        const int form = now.action >> 16;
        if (form < COMMON_CASES) {
            switch (form) {
            //{common cases}
            default: __builtin_unreachable();
            }
        } else {
            switch (form) {
            //{few cases}
#if RARE
            //{rare cases}
#endif
            default: __builtin_unreachable();
            }
        }
        if (now.action & END) return;
    }
}

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
// One operator on single numbers, and its derivatives.
__device__ __noinline__ T scalar(int code, T a, T a_low, T b, T &y_low, T &da, T &db)
{
    T y = T(0);
    y_low = da = db = T(0);
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
        Result &result = results[(step.result >> 1) - first_result];
        result.value = scalar(step.code, a.value, a.low, b.value, result.low, da, db);
        result.active = a.active | b.active;
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) {
            T rate = a.active >> t & 1 ? da * a.rate[t] : T(0);
            if (b.active >> t & 1) rate = fma(db, b.rate[t], rate);
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

// This thread's sums over its points.  They are made in T over FOLD tiles; where that overflows, once more in float64.
INLINE void sum_points(const FitJob &job, const Frame &frame, const Entry *entries, double (&sum)[N_SUMS])
{
    const int lane = threadIdx.x % LANES * WIDTH, first = threadIdx.x / LANES * TILE;
    T part[N_SUMS];
#pragma unroll
    for (int s = 0; s < N_SUMS; ++s) sum[s] = 0.0, part[s] = T(0);
    bool wide = false;
    for (int tile = first, start = first, n_tiles = 0; tile < job.n_points;) {
        Dual acc;
        run(frame.at(tile + lane), entries, acc);
        const Goal goal = goal_at(job, tile + lane);
        if (wide) add_points<double>(job, acc, goal, sum);
        else add_points<T>(job, acc, goal, part);
        tile += WARPS * TILE;
        if (++n_tiles < FOLD && tile < job.n_points) continue;
        if (sizeof(T) == 4 && !wide && !__all_sync(0xffffffffu, in_range(part))) {
            wide = true;
            tile = start;
        } else {
#pragma unroll
            for (int s = 0; s < N_SUMS; ++s) if (!wide) sum[s] += double(part[s]);
            start = tile;
            if (TASK == FIT && !__all_sync(0xffffffffu, is_finite(sum[0]))) break;  // no step that could be taken
        }
#pragma unroll
        for (int s = 0; s < N_SUMS; ++s) part[s] = T(0);
        n_tiles = 0;
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
INLINE void sum_rows(const FitJob &job, const Frame &frame, char *arena, const Entry *entries, int n, double *total)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, n_sums = 1 + n + n * (n + 1) / 2;
    char *own = arena + job.slots + warp * job.warp_bytes;
    const Rows rows = {reinterpret_cast<T *>(own + job.rows), reinterpret_cast<double *>(own + job.products), n};
    for (int s = lane; s < n_sums; s += LANES) rows.products[s] = 0.0;
    double loss = 0.0;
    for (int tile = warp * TILE; tile < job.n_points; tile += WARPS * TILE) {
        const int at = tile + lane * WIDTH;
        const Goal goal = goal_at(job, at);
        for (int first = 0; first < n; first += TANGENTS) {
            Dual acc;
            run(frame.at(at), entries + first / TANGENTS * job.max_words, acc);
            rows.write(acc, goal, first, T(job.delta), loss);
        }
        __syncwarp();
        rows.add_products();
        __syncwarp();
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

// ── Levenberg-Marquardt, by one thread ───────────────────────────────────────────────

struct Progress {
    double damping, growth, predicted;
    int iterations, evaluations, status, phase;
};
constexpr int PROGRESS_BYTES = 40;
static_assert(sizeof(Progress) == PROGRESS_BYTES, "the host counts on it");

// A fit in the block's memory: of n parameters p, trial, step and scale, the sums now and of the trial, a factor.
struct State {
    Progress *now_at;
    double *numbers;
    int n_many;

    INLINE int n() const { return MANY ? n_many : TANGENTS; }
    INLINE int n_sums() const { return 1 + n() + n() * (n() + 1) / 2; }
    INLINE Progress &progress() const { return *now_at; }
    INLINE double &p(int i) const { return numbers[i]; }
    INLINE double &trial(int i) const { return numbers[n() + i]; }
    INLINE double &step(int i) const { return numbers[2 * n() + i]; }
    INLINE double &scale(int i) const { return numbers[3 * n() + i]; }
    INLINE double *now() const { return numbers + 4 * n(); }
    INLINE double *next() const { return now() + n_sums(); }
    INLINE double &loss() const { return now()[0]; }
    INLINE double &g(int i) const { return now()[1 + i]; }
    INLINE double &a(int i, int j) const { return now()[1 + n() + i * (i + 1) / 2 + j]; }  // i >= j
    INLINE double &factor(int i, int j) const { return next()[n_sums() + i * (i + 1) / 2 + j]; }
};

INLINE State state_of(const FitJob &job, char *arena, int n)
{
    char *at = arena + job.state;
    return State{reinterpret_cast<Progress *>(at), reinterpret_cast<double *>(at + PROGRESS_BYTES), n};
}

struct Bounds {
    const double *lower, *upper;

    INLINE double low(int i) const { return lower ? lower[i] : -MOST; }
    INLINE double high(int i) const { return upper ? upper[i] : MOST; }
    // What is evaluated: a parameter of type T within its bounds.
    INLINE double nearest(double p, int i) const { return p != p ? p : min(max(double(T(p)), low(i)), high(i)); }
};

INLINE bool is_active(const State &s, const Bounds &bounds, int i)
{
    const double a = s.a(i, i), g = s.g(i);
    if (!(a > 0.0 && is_finite(a) && is_finite(g))) return false;
    return !(s.p(i) <= bounds.low(i) && g > 0.0) && !(s.p(i) >= bounds.high(i) && g < 0.0);
}

// Solve (J'J + damping D) step = -J'r for the active parameters that ``mask`` allows; false if that is not definite.
// The factor holds L times its pivots below the diagonal, and on it the pivots' inverses, 0 for what takes no part.
INLINE bool solve(const State &s, const Bounds &bounds, double damping, unsigned long long mask)
{
#pragma unroll
    for (int i = 0; i < s.n(); ++i) {
        const bool takes_part = is_active(s, bounds, i) && (i < 64 ? mask >> i & 1 : mask == ~0ull);
        double rest = takes_part ? -s.g(i) : 0.0, pivot = fma(damping, s.scale(i), s.a(i, i));
#pragma unroll
        for (int j = 0; j < i; ++j) {
            double left = takes_part && s.factor(j, j) > 0.0 ? s.a(i, j) : 0.0;
#pragma unroll
            for (int k = 0; k < j; ++k) left = fma(-s.factor(i, k), s.factor(j, k) * s.factor(k, k), left);
            s.factor(i, j) = left;
            pivot = fma(-left * left, s.factor(j, j), pivot);
            rest = fma(-left * s.factor(j, j), s.step(j), rest);
        }
        s.step(i) = rest;
        s.factor(i, i) = takes_part ? inverse(pivot) : 0.0;
        if (takes_part && !(pivot > 0.0 && is_finite(s.factor(i, i)))) return false;
    }
#pragma unroll
    for (int i = s.n() - 1; i >= 0; --i) {
        double rest = s.step(i);
#pragma unroll
        for (int k = i + 1; k < s.n(); ++k) rest = fma(-s.factor(k, i), s.step(k), rest);
        s.step(i) = s.factor(i, i) * rest;
        if (!is_finite(s.step(i))) return false;
    }
    return true;
}

// Make the trial and the step that really leads there; the loss that the step should take off.
INLINE void make_trial(const State &s, const Bounds &bounds)
{
    double predicted = 0.0;
#pragma unroll
    for (int i = 0; i < s.n(); ++i) {
        s.trial(i) = bounds.nearest(s.p(i) + s.step(i), i);
        s.step(i) = s.trial(i) - s.p(i);
        if (s.step(i) == 0.0) continue;  // perhaps of derivatives that are not finite
        double row = s.g(i);
#pragma unroll
        for (int j = 0; j < i; ++j) if (s.step(j) != 0.0) row = fma(s.a(i, j), s.step(j), row);
        predicted = fma(-2.0 * s.step(i), row + 0.5 * s.a(i, i) * s.step(i), predicted);
    }
    s.progress().predicted = predicted;
}

INLINE bool is_flat(const State &s, const Bounds &bounds, double gtol)
{
    bool flat = true;
#pragma unroll
    for (int i = 0; i < s.n(); ++i) {
        const double most = gtol * gtol * s.a(i, i) * s.loss();
        if (is_active(s, bounds, i) && !(s.g(i) * s.g(i) <= most && is_finite(most))) flat = false;
    }
    return flat || s.loss() == 0.0;
}

// Make the trial the point where the fit stands; ``anew``: what was seen before does not count for the scale.
INLINE void accept(const State &s, bool anew)
{
#pragma unroll
    for (int i = 0; i < s.n(); ++i) s.p(i) = s.trial(i);
#pragma unroll
    for (int i = 0; i < s.n_sums(); ++i) s.now()[i] = s.next()[i];
#pragma unroll
    for (int i = 0; i < s.n(); ++i) {
        const double a = is_finite(s.a(i, i)) ? s.a(i, i) : 0.0;
        s.scale(i) = anew ? a : max(FADING * s.scale(i), a);
    }
}

INLINE void damp_more(const State &s)
{
    s.progress().damping *= s.progress().growth;
    s.progress().growth *= 2.0;
}

// Judge the step that was evaluated last; the status if the fit ends with it.
INLINE int judge(const FitJob &job, const State &s, const Bounds &bounds)
{
    const double loss = s.next()[0], less = s.loss() - loss, predicted = s.progress().predicted;
    const bool better = less > 0.0 && is_finite(loss);
    const bool settled = fabs(less) <= job.tol * s.loss() && predicted <= job.tol * s.loss();
    if (better) {
        const double way = 2.0 * less * inverse(predicted) - 1.0;
        s.progress().damping *= max(1.0 / 3.0, 1.0 - way * way * way);
        s.progress().growth = 2.0;
        accept(s, false);
    } else {
        damp_more(s);
    }
    if (settled) return FTOL;
    return better && is_flat(s, bounds, job.gtol) ? GTOL : RUNNING;
}

// Find the next trial; the status if there is none.
INLINE int propose(const FitJob &job, const State &s, const Bounds &bounds)
{
    while (true) {
        if (s.progress().iterations >= job.max_iter) return MAX_ITER;
        if (!(s.progress().damping <= MOST_DAMPING)) return STUCK;
        ++s.progress().iterations;
        if (solve(s, bounds, s.progress().damping, ~0ull)) break;
        damp_more(s);
    }
    make_trial(s, bounds);
    bool still = true;
#pragma unroll
    for (int i = 0; i < s.n(); ++i)
        if (is_active(s, bounds, i) && !(fabs(s.step(i)) <= job.tol * (fabs(s.p(i)) + job.tol))) still = false;
    return still ? XTOL : RUNNING;
}

INLINE bool propose_linear(const State &s, const Bounds &bounds, unsigned long long linear)
{
    if (!linear || !solve(s, bounds, EXACT_DAMPING, linear)) return false;
    make_trial(s, bounds);
    bool moves = false;
#pragma unroll
    for (int i = 0; i < s.n(); ++i) moves |= s.step(i) != 0.0;
    return moves;
}

// After an evaluation: take it in, and say where the next one is.
INLINE void advance(const FitJob &job, const State &s, const Bounds &bounds, int e)
{
    ++s.progress().evaluations;
    int status = RUNNING;
    if (s.progress().phase == AT_STEP) {
        status = judge(job, s, bounds);
    } else {
        if (s.progress().phase == AT_START || s.next()[0] < s.loss()) accept(s, true);
        if (job.verdicts[e] != RUNNING) status = job.verdicts[e];
        else if (!is_finite(s.loss())) status = NOT_FINITE;
        else if (s.progress().phase == AT_START && propose_linear(s, bounds, job.linear ? job.linear[e] : 0)) {
            s.progress().phase = AT_LINEAR_STEP;
            return;
        } else if (is_flat(s, bounds, job.gtol)) status = GTOL;
    }
    s.progress().phase = AT_STEP;
    s.progress().status = status == RUNNING ? propose(job, s, bounds) : status;
}

// The same, of few parameters in registers.
INLINE void advance_in_registers(const FitJob &job, const State &stored, const Bounds &bounds, int e)
{
    constexpr int TRIANGLE = TANGENTS * (TANGENTS + 1) / 2, SUMS = 1 + TANGENTS + TRIANGLE, KEPT = 4 * TANGENTS + SUMS;
    Progress progress = *stored.now_at;
    double numbers[KEPT + SUMS + TRIANGLE];
    const State s = {&progress, numbers, TANGENTS};
#pragma unroll
    for (int i = 0; i < KEPT + SUMS; ++i) numbers[i] = stored.numbers[i];
    advance(job, s, bounds, e);
#pragma unroll
    for (int i = 0; i < KEPT; ++i) stored.numbers[i] = numbers[i];
    *stored.now_at = progress;
}

INLINE void begin(const FitJob &job, const State &s, const Bounds &bounds, const double *start, int n_params)
{
    s.progress().damping = FIRST_DAMPING;
    s.progress().growth = 2.0;
    s.progress().iterations = s.progress().evaluations = 0;
    s.progress().status = RUNNING;
    s.progress().phase = AT_START;
    for (int i = 0; i < s.n(); ++i) s.trial(i) = i < n_params ? bounds.nearest(start[i], i) : 0.0;
}

// ── a block ──────────────────────────────────────────────────────────────────────────

struct Item {
    int e, n_params;
    Long row;  // set and expression
    Program program;
};

INLINE void finish_fit(const FitJob &job, const Item &item, const State &s)
{
    const bool lost = s.progress().status == NOT_FINITE;
    for (int i = threadIdx.x; i < job.max_params; i += BLOCK)
        job.params[item.row * job.max_params + i] = i < item.n_params ? s.p(i) : nan("");
    if (threadIdx.x) return;
    job.loss[item.row] = lost ? nan("") : s.loss();
    job.iterations[item.row] = s.progress().iterations;
    job.evaluations[item.row] = s.progress().evaluations;
    job.status[item.row] = (unsigned char)(s.progress().status);
}

INLINE void write_normal(const FitJob &job, const Item &item, const State &s)
{
    const double *sums = s.next();
    const int n = item.n_params, most = job.max_params;
    if (threadIdx.x == 0) job.loss[item.row] = sums[0];
    for (int i = threadIdx.x; i < n; i += BLOCK) job.jtr[item.row * most + i] = sums[1 + i];
    for (int i = threadIdx.x; i < n * n; i += BLOCK) {
        const int row = max(i / n, i % n), column = min(i / n, i % n);
        job.jtj[(item.row * most + i / n) * most + i % n] = sums[1 + s.n() + row * (row + 1) / 2 + column];
    }
}

INLINE void write_jacobian(const FitJob &job, const Item &item, const Frame &frame, const Entry *entries, int first)
{
    const int lane = threadIdx.x % LANES * WIDTH;
    for (int tile = threadIdx.x / LANES * TILE; tile < job.n_points; tile += WARPS * TILE) {
        Dual acc;
        run(frame.at(tile + lane), entries, acc);
#pragma unroll
        for (int k = 0; k < POINTS; ++k) {
            const int point = tile + lane + k / WIDTH * CHUNK + k % WIDTH;
#pragma unroll
            for (int t = 0; t < TANGENTS; ++t)
                if (point < job.n_points && first + t < item.n_params)
                    job.jacobian[(item.row * job.n_points + point) * job.max_params + first + t] = acc.rate[t][k];
        }
    }
}

// Loss and gradient, or J: of as many parameters at a time as there are tangents.
INLINE void derive(const FitJob &job, const Item &item, const Frame &frame, char *arena, const double *params)
{
    Entry *entries = reinterpret_cast<Entry *>(arena + job.entries);
    double *scratch = reinterpret_cast<double *>(arena + job.sums), *total = scratch + WARPS * N_SUMS;
    for (int first = 0; first < max(item.n_params, 1); first += TANGENTS) {
        sync();
        make_entries(job, item.e, item.program, arena, params, first, entries);
        sync();
        if (TASK == JACOBIAN) {
            write_jacobian(job, item, frame, entries, first);
            continue;
        }
        double sum[N_SUMS];
        sum_points(job, frame, entries, sum);
        add_threads(sum, scratch, total);
        for (int t = threadIdx.x; t < TANGENTS; t += BLOCK)
            if (first + t < item.n_params) job.jtr[item.row * job.max_params + first + t] = total[1 + t];
        if (threadIdx.x == 0 && first == 0) job.loss[item.row] = total[0];
    }
}

// Normal equations, or a whole fit.
INLINE void optimise(const FitJob &job, const Item &item, const Frame &frame, char *arena, const double *start)
{
    Entry *entries = reinterpret_cast<Entry *>(arena + job.entries);
    const State state = state_of(job, arena, item.n_params);
    const Long at = Long(item.e) * job.max_params;
    const Bounds bounds = {job.lower ? job.lower + at : nullptr, job.upper ? job.upper + at : nullptr};
    if (threadIdx.x == 0) begin(job, state, bounds, start, item.n_params);
    sync();
    while (true) {
        for (int first = 0; first < (MANY ? item.n_params : 1); first += TANGENTS)
            make_entries(job, item.e, item.program, arena, &state.trial(0), first, entries + first / TANGENTS * job.max_words);
        sync();
        if (MANY) {
            sum_rows(job, frame, arena, entries, item.n_params, state.next());
        } else {
            double sum[N_SUMS];
            sum_points(job, frame, entries, sum);
            add_threads(sum, reinterpret_cast<double *>(arena + job.sums), state.next());
        }
        if (TASK == NORMAL) return write_normal(job, item, state);
        if (threadIdx.x == 0) {
            if (MANY) advance(job, state, bounds, item.e);
            else advance_in_registers(job, state, bounds, item.e);
        }
        sync();
        if (state.progress().status != RUNNING) return finish_fit(job, item, state);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) fit(const FitJob job)
{
    extern __shared__ Vector shared[];
    char *arena = GLOBAL_ARENA ? job.arena + blockIdx.x * job.arena_bytes : reinterpret_cast<char *>(shared);
    char *own = arena + job.slots + threadIdx.x / LANES * job.warp_bytes;
    const Frame frame = {job.columns, reinterpret_cast<Vector *>(own) + threadIdx.x % LANES,
                         reinterpret_cast<unsigned *>(own + job.actives) + threadIdx.x % LANES, job.pitch};
    const Long number = job.first_item + blockIdx.x;
    Item item;
    item.e = job.order[number / job.n_sets];
    item.row = number % job.n_sets * job.n_exprs + item.e;
    item.n_params = job.n_params[item.e];
    item.program = program_of(job, item.e);
    const double *params = job.starts + item.row * job.max_params;
    if constexpr (TASK == GRADIENT || TASK == JACOBIAN) derive(job, item, frame, arena, params);
    else optimise(job, item, frame, arena, params);
}

// Of every expression's fits the one with the least loss (of equal ones the first) goes into set 0, with the
// evaluations of all; a thread an expression.
extern "C" __global__ void choose(const FitJob job)
{
    const Long e = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (e >= job.n_exprs) return;
    Long best = e;
    for (Long row = e + job.n_exprs; row < Long(job.n_sets) * job.n_exprs; row += job.n_exprs) {
        job.evaluations[e] += job.evaluations[row];
        if (job.loss[row] < job.loss[best] || (job.loss[best] != job.loss[best] && job.loss[row] == job.loss[row])) best = row;
    }
    if (best == e) return;
    for (int i = 0; i < job.max_params; ++i) job.params[e * job.max_params + i] = job.params[best * job.max_params + i];
    job.loss[e] = job.loss[best];
    job.iterations[e] = job.iterations[best];
    job.status[e] = job.status[best];
}
