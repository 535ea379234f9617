// The GPU interpreter: one launch runs a whole population on all of its data points.
//
// What is computed, plainly:
//
//     for tile of TILE points:                          (a block: the tile's columns in shared memory)
//         for item in (parameter set, expression):      (a warp takes a run of consecutive items)
//             for word in its program:
//                 accumulator = operator(accumulator, operand)      (POINTS points a thread at once)
//             hand the accumulator on: into the matrix, or into the sum of a loss
//
// A word is decoded once for all points of a thread.  Its operand is a column, a spilled accumulator
// (a slot) or a number that is the same for all points.  Programs of consecutive expressions are one
// stream of words; a warp keeps a strip of the next LANES words in shared memory.
//
//     words     action: case << 16 | slot << 8 | END | LOAD | SPILL | SLOT
//               places: column to load << 16 | operand's column or slot
//     numbers   [set][word]: the word's number and, of a pair, its low part
//     columns   [column][pitch]: padded to whole tiles with the last point
//     shared    each warp's strip of words, its scratch, [column][TILE], target and weights, each warp's slots
//
// The host defines (cubins.py):
//
//     REAL          float or double                       LANES      32 (1 where a CPU runs this text)
//     VECTORS       16-byte vectors of a thread           BLOCK      threads of a block
//     TASK          VALUES, SQUARE or ABSOLUTE            REDUCTION  SHUFFLE, SHARED or ATOMIC
//     WEIGHTED, COUNTED, COLUMNS_SHARED, APPROXIMATE_DIVISION, APPROXIMATE_ROOT    0 or 1
//     PAIRS         1 where the low parts of pairs are used
//     FLUSH         ".ftz" or "": what the hardware's approximations do with subnormals
//     SUPPORT       1: the kernels before and after, not the interpreter
//     MIN_BLOCKS    of one multiprocessor: limits the registers of a thread
//     STACK         deepest stack of the per-expression kernel
//
// The operators' cases are generated from the table in ops.py; everything else is written here.

enum { VALUES, SQUARE, ABSOLUTE };
enum { SHUFFLE, SHARED, ATOMIC };
enum { END = 1, LOAD = 2, SPILL = 4, SLOT = 8 };          // of a word's action
enum { NO_NUMBER, PARAMETER, CONSTANT, RESULT };          // where a number comes from: index << 2 | this
enum { T_CONSTANT, T_VARIABLE, T_PARAMETER, T_OPERATOR, T_STOP };  // tokens of the postfix form

typedef REAL T;
typedef long long Long;

constexpr int WIDTH = 16 / sizeof(T);      // numbers in a vector
constexpr int POINTS = VECTORS * WIDTH;    // points of a thread
constexpr int CHUNK = LANES * WIDTH;       // points of a warp's vector; float32 sums go no further
constexpr int TILE = VECTORS * CHUNK;      // points of a warp
constexpr int WARPS = BLOCK / LANES;

struct __align__(16) Vector { T at[WIDTH]; };
struct __align__(8) Word { unsigned action, places; };
struct __align__(2 * sizeof(T)) Number { T high, low; };
struct __align__(16) Record { unsigned action, places; Number number; };
struct __align__(16) Step { int code, a, b, result; };  // of a prologue; result: index << 1 | is a pair

struct Job {
    // programs
    const Word *words;           // (n_words)
    const int *first_word;       // (n_exprs)
    const int *sources;          // (n_words) the words' numbers
    const Step *steps;           // prologues
    const int *first_step;       // (n_exprs + 1)
    const T *constants;
    Number *numbers;             // (n_sets, n_words)
    T *results;                  // (n_sets, n_results) of the prologues
    const T *params;             // (n_sets, n_exprs, max_params)
    // data
    const T *data;               // as the user gave it, two strides
    const int *column_code, *column_var, *column_low;
    T *columns;                  // (n_columns, pitch)
    const T *target, *weights;   // (n_points)
    // work: a segment is a run of items on one tile, cut into one range a warp
    const int *first_segment;    // (blocks + 1)
    const int *tile_of;          // (n_segments)
    const Long *cuts;            // (n_segments, WARPS + 1)
    // results
    T *out;                      // (items, n_points)
    T *partials;                 // (items, n_chunks)
    double *sums;                // (items)
    unsigned long long *nonfinite;  // (items, 2): nan, inf
    Long n_points, pitch, stride_point, stride_variable, first_item, n_items, first_chunk;
    int n_exprs, n_words, n_sets, max_params, n_columns, n_slots, n_results, n_chunks, store_width, add_to_sums;
    int expression, max_tokens;  // of the per-expression kernel
    const unsigned char *token_kinds;  // padded to max_tokens with T_STOP
    const int *token_values;
    const T *token_numbers;
};

#define INLINE __device__ __forceinline__

// ── the hardware's approximations ────────────────────────────────────────────────────

#ifndef EMULATED
#define APPROXIMATION(name, instruction)                                                   \
    INLINE float approximate_##name(float a)                                               \
    {                                                                                      \
        float y;                                                                           \
        asm(instruction ".approx" FLUSH ".f32 %0, %1;" : "=f"(y) : "f"(a));                  \
        return y;                                                                          \
    }
APPROXIMATION(exp2, "ex2")
APPROXIMATION(log2, "lg2")
APPROXIMATION(reciprocal, "rcp")
APPROXIMATION(root, "sqrt")
APPROXIMATION(sin, "sin")
APPROXIMATION(cos, "cos")
INLINE float approximate_quotient(float a, float b)
{
    float y;
    asm("div.approx" FLUSH ".f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
#endif

// ── arithmetic that the table's cells use ────────────────────────────────────────────

constexpr double LARGEST = sizeof(T) == 4 ? 3.4028234663852886e38 : 1.7976931348623157e308;
constexpr T LN2 = T(0.69314718055994530942);

INLINE double quotient(double a, double b) { return a / b; }
INLINE float quotient(float a, float b) { return APPROXIMATE_DIVISION ? approximate_quotient(a, b) : a / b; }
INLINE double reciprocal(double a) { return 1.0 / a; }
INLINE float reciprocal(float a) { return APPROXIMATE_DIVISION ? approximate_reciprocal(a) : 1.0f / a; }
INLINE double root(double a) { return sqrt(a); }
INLINE float root(float a) { return APPROXIMATE_ROOT ? approximate_root(a) : sqrt(a); }

INLINE double fast_exp2(double a) { return exp2(a); }
INLINE float fast_exp2(float a) { return approximate_exp2(a); }
INLINE double fast_exp(double a) { return exp(a); }
INLINE float fast_exp(float a) { return approximate_exp2(a * 1.4426950408889634f); }
INLINE double fast_log2(double a) { return log2(a); }
INLINE float fast_log2(float a) { return approximate_log2(a); }
INLINE double fast_log(double a) { return log(a); }
INLINE float fast_log(float a) { return approximate_log2(a) * float(LN2); }
INLINE double fast_log10(double a) { return log10(a); }
INLINE float fast_log10(float a) { return approximate_log2(a) * 0.30102999566398120f; }

// The hardware's sine is good within one turn: take off whole turns first.
INLINE float within_turn(float a)
{
    const float turns = rint(a * 0.15915494309189535f);
    return fma(turns, 1.7484555314695172e-7f, fma(turns, -6.2831854820251465f, a));
}
INLINE double fast_sin(double a) { return sin(a); }
INLINE float fast_sin(float a) { return approximate_sin(within_turn(a)); }
INLINE double fast_cos(double a) { return cos(a); }
INLINE float fast_cos(float a) { return approximate_cos(within_turn(a)); }
INLINE double fast_tan(double a) { return tan(a); }
INLINE float fast_tan(float a) { return quotient(fast_sin(a), fast_cos(a)); }

INLINE T sign_of(T a) { return a > T(0) ? T(1) : a < T(0) ? T(-1) : a == T(0) ? T(0) : a; }

INLINE T sigmoid(T a)
{
    const T e = exp(-fabs(a));
    return (a < T(0) ? e : T(1)) / (T(1) + e);
}

INLINE float analytic_quotient(float a, float b) { return float(a / sqrt(1.0 + double(b) * b)); }
INLINE double analytic_quotient(double a, double b) { return a / sqrt(1.0 + b * b); }

// a - floor(a / b) b: the remainder with the sign of b.
INLINE T floor_mod(T a, T b)
{
    const T r = fmod(a, b);
    if (r == T(0)) return copysign(T(0), b);
    return (r < T(0)) == (b < T(0)) ? r : r + b;
}

// log2 |a| as an unevaluated sum of two numbers.
INLINE float log2_pair(float a, float &low)
{
    const double l = log2(fabs(double(a)));
    const float high = float(l);
    low = l - l == 0.0 ? float(l - double(high)) : 0.0f;
    return high;
}

INLINE double log2_pair(double a, double &low)
{
    int k;
    double m = frexp(fabs(a), &k);  // in [0.5, 1)
    low = 0.0;
    if (!(fabs(a) > 0.0 && fabs(a) <= LARGEST)) return log2(fabs(a));
    if (m < 0.70710678118654752) { m += m; k -= 1; }
    // log2 m = 2 / ln 2 (f + f^3 / 3 + f^5 / 5 + ...) with f = (m - 1) / (m + 1); the first two terms in two parts
    const double d = m - 1.0, s = m + 1.0, s_low = m - (s - 1.0);
    const double f = d / s, f_low = (fma(-f, s, d) - f * s_low) / s;
    const double q = f * f, q_low = fma(f, f, -q) + 2.0 * f * f_low;
    const double c = q * f, c_low = fma(q, f, -c) + q * f_low + q_low * f;
    const double t = c / 3.0, t_low = (fma(-t, 3.0, c) + c_low) / 3.0;
    const double rest = c * q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9 + q * (1.0 / 11 + q * (1.0 / 13
                      + q * (1.0 / 15 + q * (1.0 / 17 + q * (1.0 / 19 + q / 21))))))));
    const double g = f + t, g_low = (f - g) + t + (f_low + t_low + rest);
    const double scale = 2.8853900817779268, scale_low = 4.0710547481862066e-17;  // 2 / ln 2
    const double y = g * scale, y_low = fma(g, scale, -y) + (g * scale_low + g_low * scale);
    const double sum = k + y, rest_of_sum = (k - sum) + y + y_low, high = sum + rest_of_sum;
    low = (sum - high) + rest_of_sum;
    return high;
}

// With 0 and inf as the largest numbers there are, 0 * b is 0 and not nan for b = 0.
INLINE T log2_pair_bounded(T a, T &low)
{
    const T high = log2_pair(a, low);
    return high > T(LARGEST) ? T(LARGEST) : high < T(-LARGEST) ? T(-LARGEST) : high;
}

// 2^((high + low) b), 1 where high or b is 0.
INLINE T exp2_of_product(T high, T low, T b)
{
    const T p = high * b, rest = (fma(high, b, -p) + low * b) * LN2;
    const T y = exp2(p), corrected = fma(y, rest, y);
    const T result = corrected == corrected ? corrected : y;  // nan: out of range, where there is nothing to correct
    return high == T(0) || b == T(0) ? T(1) : result;
}
INLINE double fast_exp2_of_product(double high, double low, double b) { return exp2_of_product(high, low, b); }
INLINE float fast_exp2_of_product(float high, float low, float b) { return approximate_exp2(high * b); }

INLINE double fast_pow(double a, double b) { return a < 0.0 ? nan("") : pow(a, b); }
INLINE float fast_pow(float a, float b) { return b == 0.0f ? 1.0f : approximate_exp2(b * approximate_log2(a)); }

// a^b for whole b; with fast operators as a product of squares, from 64 on through the logarithm.
INLINE double whole_power(double a, double b) { return pow(a, b); }
INLINE float whole_power(float a, float b)
{
    if (PAIRS) return pow(a, b);
    const float size = fabs(b);
    if (size >= 64.0f) {
        const float y = approximate_exp2(b * approximate_log2(fabs(a)));
        return a < 0.0f && fmod(size, 2.0f) == 1.0f ? -y : y;
    }
    float y = 1.0f, square = a;
    for (int n = int(size); n > 0; n >>= 1) {
        if (n & 1) y *= square;
        if (n > 1) square *= square;
    }
    return b < 0.0f ? reciprocal(y) : y;
}

#if !SUPPORT

// ── shared memory by its 32-bit address ──────────────────────────────────────────────

constexpr unsigned VECTOR_BYTES = 16, CHUNK_BYTES = CHUNK * sizeof(T), TILE_BYTES = TILE * sizeof(T);

#ifndef EMULATED
// The compiler would compute a generic pointer anew for every word of a program.
INLINE unsigned shared_address(const void *pointer)
{
    unsigned address = unsigned(__cvta_generic_to_shared(pointer));
    asm volatile("" : "+r"(address));
    return address;
}

template <class V> INLINE V load_shared(unsigned address)
{
    unsigned part[sizeof(V) / 4];
#pragma unroll
    for (int i = 0; i < sizeof(V) / 4; i += 4)
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(part[i]), "=r"(part[i + 1]), "=r"(part[i + 2]), "=r"(part[i + 3]) : "r"(address + 4 * i) : "memory");
    return *reinterpret_cast<V *>(part);
}

template <class V> INLINE void store_shared(unsigned address, V value)
{
    const unsigned *part = reinterpret_cast<const unsigned *>(&value);
#pragma unroll
    for (int i = 0; i < sizeof(V) / 4; i += 4)
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                     :: "r"(address + 4 * i), "r"(part[i]), "r"(part[i + 1]), "r"(part[i + 2]), "r"(part[i + 3]) : "memory");
}
#endif

INLINE Vector load_global(const T *at) { return *reinterpret_cast<const Vector *>(at); }

// ── an operator on all points of a thread ────────────────────────────────────────────

// Where a thread finds its first vector of an operand; the others follow, a chunk apart.
struct Place {
    unsigned shared;
    const T *global;  // only without COLUMNS_SHARED, and not for slots
    Long pitch;

    INLINE Vector load(int j) const
    {
        if (COLUMNS_SHARED || global == nullptr) return load_shared<Vector>(shared + j * CHUNK_BYTES);
        return load_global(global + j * CHUNK);
    }
    INLINE Place next() const { return Place{shared + TILE_BYTES, COLUMNS_SHARED ? nullptr : global + pitch, pitch}; }
};

// acc = f(acc)
template <class F> INLINE void alone(T (&acc)[POINTS], F f)
{
#pragma unroll
    for (int k = 0; k < POINTS; ++k) acc[k] = f(acc[k]);
}

// acc = f(acc, number)
template <class F> INLINE void with_number(T (&acc)[POINTS], T number, F f)
{
#pragma unroll
    for (int k = 0; k < POINTS; ++k) acc[k] = f(acc[k], number);
}

// acc = f(acc, memory)
template <class F> INLINE void with_memory(T (&acc)[POINTS], const Place &memory, F f)
{
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const Vector b = memory.load(j);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) acc[j * WIDTH + k] = f(acc[j * WIDTH + k], b.at[k]);
    }
}

// acc = f(acc, pair in memory)
template <class F> INLINE void with_pair(T (&acc)[POINTS], const Place &high, F f)
{
    const Place low = high.next();
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const Vector a = high.load(j), a_low = PAIRS ? low.load(j) : a;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) acc[j * WIDTH + k] = f(acc[j * WIDTH + k], a.at[k], a_low.at[k]);
    }
}

INLINE void set(T (&acc)[POINTS], T number)
{
#pragma unroll
    for (int k = 0; k < POINTS; ++k) acc[k] = number;
}

INLINE void spill(const T (&acc)[POINTS], unsigned slot)
{
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        Vector v;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) v.at[k] = acc[j * WIDTH + k];
        store_shared(slot + j * CHUNK_BYTES, v);
    }
}

// Move all points up by one vector; ``y`` becomes the last.
INLINE void shift_in(T (&acc)[POINTS], const T (&y)[WIDTH])
{
#pragma unroll
    for (int k = 0; k < POINTS - WIDTH; ++k) acc[k] = acc[k + WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) acc[POINTS - WIDTH + k] = y[k];
}

// Operators of long code: it stands there once for WIDTH points, and the accumulator goes round.
template <class F> INLINE void go_round(T (&acc)[POINTS], F f)
{
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        T y[WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) y[k] = f(acc[k]);
        shift_in(acc, y);
    }
}

template <class F> INLINE void go_round(T (&acc)[POINTS], int form, const Place &memory, T number, F f)
{
    const bool first = form & 1, is_number = form & 2;
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        Vector b;
        if (is_number) {
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) b.at[k] = number;
        } else {
            b = memory.load(j);
        }
        T y[WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) y[k] = f(first ? b.at[k] : acc[k], first ? acc[k] : b.at[k]);
        shift_in(acc, y);
    }
}

// The same for operators that take a pair: its columns (form 0) or numbers (1) with the accumulator, or columns
// with a number (2).
template <class F> INLINE void go_round_pair(T (&acc)[POINTS], int form, const Place &memory, T high, T low, F f)
{
    const Place low_memory = memory.next();
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        Vector a, a_low;
        if (form != 1) {
            a = memory.load(j);
            a_low = low_memory.load(j);
        }
        T y[WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k)
            y[k] = f(form == 2 ? high : acc[k], form == 1 ? high : a.at[k], form == 1 ? low : a_low.at[k]);
        shift_in(acc, y);
    }
}

// ── what becomes of an item's values ─────────────────────────────────────────────────

// Where a thread's results of the current item go.
struct Sink {
    T *row;             // VALUES: this lane's first point
    T *partial;         // else: the sum that this lane writes ...
    int n_written;      // ... or how many, 0 for most lanes
    unsigned target;    // this lane's first target value; one tile on, the weights
    Long start;         // first point of the tile
    bool whole;         // no point of the tile lies past the last one
};

// Add up over the lanes: lane 0 (or, of VECTORS = 2, 4 and 8, the first lane of each half, quarter or eighth) gets a
// chunk's sum.  Lane and partner always add the same two numbers, so the bits don't depend on VECTORS.
INLINE void add_lanes_shuffle(T (&sum)[VECTORS], int lane)
{
    int step = LANES / 2;
    if (LANES > 1 && (VECTORS == 2 || VECTORS == 4 || VECTORS == 8)) {
#pragma unroll
        for (int half = VECTORS / 2; half > 0; half /= 2, step /= 2) {
            const bool upper = lane & step;
#pragma unroll
            for (int c = 0; c < half; ++c) {
                const T keep = upper ? sum[c + half] : sum[c], give = upper ? sum[c] : sum[c + half];
                sum[c] = keep + __shfl_xor_sync(0xffffffffu, give, step);
            }
        }
        for (; step > 0; step /= 2) sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], step);
    } else {
        for (; step > 0; step /= 2) {
#pragma unroll
            for (int c = 0; c < VECTORS; ++c) sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], step);
        }
    }
}

constexpr bool SPREAD = REDUCTION == SHUFFLE && LANES > 1 && (VECTORS == 2 || VECTORS == 4 || VECTORS == 8);

// Which chunk's sum a lane writes first.
INLINE int own_chunk(int lane) { return SPREAD ? lane / (LANES / VECTORS) : 0; }

INLINE int sums_written(int lane, int present)
{
    if (SPREAD) return lane % (LANES / VECTORS) == 0 && own_chunk(lane) < present;
    return lane == 0 ? min(VECTORS, present) : 0;
}

INLINE T add_lanes_shared(T sum, T *scratch, int lane)
{
    __syncwarp();
    scratch[lane] = sum;
    for (int step = LANES / 2; step > 0; step /= 2) {
        __syncwarp();
        if (lane < step) scratch[lane] += scratch[lane + step];
    }
    __syncwarp();
    return scratch[0];
}

template <bool WHOLE> INLINE void measure(const Job &job, const T (&acc)[POINTS], T (&sum)[VECTORS], const Sink &sink, int lane)
{
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const Vector y = load_shared<Vector>(sink.target + j * CHUNK_BYTES);
        const Vector w = WEIGHTED ? load_shared<Vector>(sink.target + TILE_BYTES + j * CHUNK_BYTES) : y;
        sum[j] = T(0);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const bool counts = WEIGHTED ? w.at[k] != T(0) : WHOLE || sink.start + j * CHUNK + lane * WIDTH + k < job.n_points;
            const T error = counts ? acc[j * WIDTH + k] - y.at[k] : T(0);
            const T weighted = WEIGHTED ? w.at[k] * error : error;
            if (TASK == SQUARE) sum[j] = k == 0 ? weighted * error : fma(weighted, error, sum[j]);
            else sum[j] = k == 0 ? fabs(weighted) : sum[j] + fabs(weighted);
        }
    }
}

INLINE void add_up(const Job &job, const T (&acc)[POINTS], Long item, const Sink &sink, T *scratch, int lane)
{
    T sum[VECTORS];
    if (sink.whole) measure<true>(job, acc, sum, sink, lane);
    else measure<false>(job, acc, sum, sink, lane);
    if (REDUCTION == ATOMIC) {
        double all = 0.0;
        for (int c = 0; c < VECTORS; ++c) all += double(sum[c]);
        atomicAdd(job.sums + (item - job.first_item), all);
        return;
    }
    if (REDUCTION == SHARED)
        for (int c = 0; c < VECTORS; ++c) sum[c] = add_lanes_shared(sum[c], scratch, lane);
    else
        add_lanes_shuffle(sum, lane);
    if (SPREAD) {
        if (sink.n_written) *sink.partial = sum[0];
    } else {
#pragma unroll
        for (int c = 0; c < VECTORS; ++c) if (c < sink.n_written) sink.partial[c] = sum[c];
    }
}

template <class V, bool WHOLE> INLINE void write_vectors(const Job &job, const T (&acc)[POINTS], const Sink &sink, int lane)
{
    constexpr int N = sizeof(V) / sizeof(T);
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
#pragma unroll
        for (int k = 0; k < WIDTH; k += N) {
            struct __align__(sizeof(V)) Part { T at[N]; } v;
#pragma unroll
            for (int i = 0; i < N; ++i) v.at[i] = acc[j * WIDTH + k + i];
            if (WHOLE || sink.start + j * CHUNK + lane * WIDTH + k < job.n_points)
                __stcs(reinterpret_cast<V *>(sink.row + j * CHUNK + k), *reinterpret_cast<V *>(&v));
        }
    }
}

// A row starts where the one before ends: n_points decides how wide a store may be.
INLINE void write(const Job &job, const T (&acc)[POINTS], const Sink &sink, int lane)
{
    if (job.store_width == 16 && sink.whole) write_vectors<uint4, true>(job, acc, sink, lane);
    else if (job.store_width == 16) write_vectors<uint4, false>(job, acc, sink, lane);
    else if (job.store_width == 8) write_vectors<uint2, false>(job, acc, sink, lane);
    else if constexpr (sizeof(T) == 4) write_vectors<unsigned, false>(job, acc, sink, lane);
}

INLINE void count_nonfinite(const Job &job, const T (&acc)[POINTS], Long item, const Sink &sink, int lane)
{
    unsigned found = 0;  // nan in the low half, inf in the high
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const T a = acc[j * WIDTH + k];
            if (sink.start + j * CHUNK + lane * WIDTH + k < job.n_points)
                found += a != a ? 1u : fabs(a) > T(LARGEST) ? 1u << 16 : 0u;
        }
    }
    for (int step = LANES / 2; step > 0; step /= 2) found += __shfl_xor_sync(0xffffffffu, found, step);
    if (lane == 0 && found) {
        unsigned long long *count = job.nonfinite + 2 * (item - job.first_item);
        if (found & 0xffffu) atomicAdd(count, (unsigned long long)(found & 0xffffu));
        if (found >> 16) atomicAdd(count + 1, (unsigned long long)(found >> 16));
    }
}

// ── the interpreter ──────────────────────────────────────────────────────────────────

// Where a warp finds things; the shared ones without the lane's share.
struct Frame {
    unsigned strip, tile, slots;
    const T *columns;  // this lane's first point of column 0, without COLUMNS_SHARED
    T *scratch;
};

// A word and its number for the strip; its column and slot become addresses in units of vectors.
INLINE Record fetch(const Job &job, const Frame &frame, int word, Long number)
{
    const Word w = job.words[word % job.n_words];
    unsigned operand = w.places & 0xffffu, loaded = w.places >> 16;
    if (COLUMNS_SHARED) {
        operand = ((w.action & SLOT ? frame.slots : frame.tile) + operand * TILE_BYTES) / VECTOR_BYTES;
        loaded = (frame.tile + loaded * TILE_BYTES) / VECTOR_BYTES;
    }
    return Record{w.action, loaded << 16 | operand, job.numbers[number]};
}

INLINE Place find(const Job &job, const Frame &frame, unsigned place, bool slot, unsigned lane_bytes)
{
    if (COLUMNS_SHARED) return Place{place * VECTOR_BYTES + lane_bytes, nullptr, 0};
    return Place{frame.slots + place * TILE_BYTES + lane_bytes, slot ? nullptr : frame.columns + place * job.pitch, job.pitch};
}

INLINE void run(const Job &job, const Frame &frame, Sink sink, Long item, Long end, int lane)
{
    const unsigned lane_bytes = lane * VECTOR_BYTES, strip_end = frame.strip + LANES * sizeof(Record);
    int word = job.first_word[item % job.n_exprs] + lane;
    Long number = item / job.n_exprs * job.n_words + word;
    Record next = fetch(job, frame, word, number);
    unsigned cursor = strip_end;
    T acc[POINTS];
    while (true) {
        if (cursor == strip_end) {
            cursor = frame.strip;
            __syncwarp();
            store_shared(cursor + lane * unsigned(sizeof(Record)), next);
            __syncwarp();
            word = word % job.n_words + LANES;
            number += LANES;
            next = fetch(job, frame, word, number);
        }
        const Record now = load_shared<Record>(cursor);
        cursor += sizeof(Record);
        const unsigned action = now.action;
        if (action & SPILL) spill(acc, frame.slots + (action >> 8 & 0xffu) * TILE_BYTES + lane_bytes);
        if (action & LOAD) with_memory(acc, find(job, frame, now.places >> 16, false, lane_bytes), [](T, T b) { return b; });
        const Place memory = find(job, frame, now.places & 0xffffu, action & SLOT, lane_bytes);
        const T high = now.number.high, a_low = now.number.low;
        const int form = action >> 16;
        if (form < COMMON_CASES) {
            switch (form) {
            //{common cases}
            default: __builtin_unreachable();
            }
        } else {
            switch (form) {
            //{other cases}
            default: __builtin_unreachable();
            }
        }
        if (action & END) {
            if (COUNTED) count_nonfinite(job, acc, item, sink, lane);
            if (TASK == VALUES) write(job, acc, sink, lane);
            else add_up(job, acc, item, sink, frame.scratch, lane);
            if (++item == end) return;
            sink.row += job.n_points;
            sink.partial += job.n_chunks;
        }
    }
}

// Copy the tile of all columns at point ``start`` into shared memory.
INLINE void load_columns(const Job &job, unsigned tile, Long start)
{
    for (int i = threadIdx.x; i < job.n_columns * (TILE / WIDTH); i += BLOCK)
        store_shared(tile + i * VECTOR_BYTES,
                     load_global(job.columns + i / (TILE / WIDTH) * job.pitch + start + i % (TILE / WIDTH) * WIDTH));
}

// The same for one value a point, with zeros behind the last one.
INLINE void load_values(const Job &job, unsigned tile, const T *values, Long start)
{
    for (int i = threadIdx.x; i < TILE / WIDTH; i += BLOCK) {
        Vector v;
        for (int k = 0; k < WIDTH; ++k) {
            const Long point = start + i * WIDTH + k;
            v.at[k] = point < job.n_points ? values[point] : T(0);
        }
        store_shared(tile + i * VECTOR_BYTES, v);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) interpret(const Job job)
{
    extern __shared__ Vector shared[];
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int n_tile_rows = COLUMNS_SHARED ? job.n_columns : 0, n_targets = TASK == VALUES ? 0 : 1 + WEIGHTED;
    const unsigned base = shared_address(shared), scratches = base + BLOCK * sizeof(Record);
    const unsigned tile = scratches + (REDUCTION == SHARED ? (BLOCK * sizeof(T) + 15) / 16 * 16 : 0);
    const unsigned targets = tile + n_tile_rows * TILE_BYTES;
    Frame frame;
    frame.strip = base + warp * LANES * unsigned(sizeof(Record));
    frame.tile = tile;
    frame.slots = targets + (n_targets + warp * job.n_slots) * TILE_BYTES;
    frame.scratch = reinterpret_cast<T *>(reinterpret_cast<Record *>(shared) + BLOCK) + warp * LANES;
    for (int s = job.first_segment[blockIdx.x]; s < job.first_segment[blockIdx.x + 1]; ++s) {
        const Long start = Long(job.tile_of[s]) * TILE;
        __syncthreads();
        if (COLUMNS_SHARED) load_columns(job, tile, start);
        if (n_targets > 0) load_values(job, targets, job.target, start);
        if (n_targets > 1) load_values(job, targets + TILE_BYTES, job.weights, start);
        __syncthreads();
        const Long *cut = job.cuts + Long(s) * (WARPS + 1) + warp;
        const Long item = cut[0], end = cut[1], row = item - job.first_item, chunk = start / CHUNK - job.first_chunk;
        if (item == end) continue;
        frame.columns = job.columns + start + lane * WIDTH;
        Sink sink;
        sink.row = job.out + row * job.n_points + start + lane * WIDTH;
        sink.partial = job.partials + row * job.n_chunks + chunk + own_chunk(lane);
        sink.n_written = sums_written(lane, int(min(Long(VECTORS), job.n_chunks - chunk)));
        sink.target = targets + lane * VECTOR_BYTES;
        sink.start = start;
        sink.whole = start + TILE <= job.n_points;
        run(job, frame, sink, item, end, lane);
    }
}

#endif
#if SUPPORT

// ── before and after ─────────────────────────────────────────────────────────────────

// One operator on single numbers: columns, prologues and the per-expression kernel.
__device__ __noinline__ T scalar(int code, T a, T a_low, T b, T &y_low)
{
    y_low = T(0);
    switch (code) {
    //{scalar cases}
    }
    return T(0);
}

// Column ``blockIdx.y`` of the programs from the user's data, a point a thread.
extern "C" __global__ void make_columns(const Job job)
{
    const Long point = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (point >= job.pitch) return;
    const Long source = min(point, job.n_points - 1);
    for (int c = blockIdx.y; c < job.n_columns; c += gridDim.y) {
        const T x = job.data[source * job.stride_point + job.column_var[c] * job.stride_variable];
        T low;
        const T y = scalar(job.column_code[c], x, T(0), T(0), low);
        job.columns[c * job.pitch + point] = job.column_low[c] ? low : y;
    }
}

INLINE Number find(const Job &job, int source, Long row, const T *results)
{
    const int index = source >> 2;
    switch (source & 3) {
    case PARAMETER: return Number{job.params[row * job.max_params + index], T(0)};
    case CONSTANT: return Number{job.constants[index], T(0)};
    case RESULT: return Number{results[index], results[index + 1]};
    }
    return Number{T(0), T(0)};
}

// The numbers of one expression with one parameter set, a thread: run its prologue, then fill in its words' numbers.
extern "C" __global__ void make_numbers(const Job job)
{
    const Long row = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= Long(job.n_sets) * job.n_exprs) return;
    const int e = int(row % job.n_exprs);
    const Long set = row / job.n_exprs;
    T *results = job.results + set * job.n_results;
    for (int s = job.first_step[e]; s < job.first_step[e + 1]; ++s) {
        const Step step = job.steps[s];
        const Number a = find(job, step.a, row, results), b = find(job, step.b, row, results);
        T low;
        const T y = scalar(step.code, a.high, a.low, b.high, low);
        results[step.result >> 1] = y;
        if (step.result & 1) results[(step.result >> 1) + 1] = low;
    }
    const int stop = e + 1 < job.n_exprs ? job.first_word[e + 1] : job.n_words;
    for (int w = job.first_word[e]; w < stop; ++w)
        if (job.sources[w]) job.numbers[set * job.n_words + w] = find(job, job.sources[w], row, results);
}

// Sum of an item's chunks in float64, a warp an item; the order depends on nothing but the chunks.
extern "C" __global__ void add_chunks(const Job job)
{
    const Long row = (Long(blockIdx.x) * blockDim.x + threadIdx.x) / LANES;
    const int lane = threadIdx.x % LANES;
    if (row >= job.n_items) return;
    double sum = 0.0;
    for (int c = lane; c < job.n_chunks; c += LANES) sum += double(job.partials[row * job.n_chunks + c]);
    for (int step = LANES / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) job.sums[row] = job.add_to_sums ? job.sums[row] + sum : sum;
}

// ── the thesis's way: one launch per expression over its postfix form ────────────────

// One expression at every point, a point a thread: tokens up to the stop, a stack in local memory.
extern "C" __global__ void per_expression(const Job job)
{
    const Long point = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (point >= job.n_points) return;
    T stack[STACK];
    int top = -1;
    for (Long t = Long(job.expression) * job.max_tokens;; ++t) {
        const int kind = job.token_kinds[t], value = job.token_values[t];
        if (kind == T_STOP) break;
        if (kind == T_CONSTANT) stack[++top] = job.token_numbers[t];
        else if (kind == T_VARIABLE) stack[++top] = job.data[point * job.stride_point + value * job.stride_variable];
        else if (kind == T_PARAMETER) stack[++top] = job.params[Long(job.expression) * job.max_params + value];
        else {
            const bool binary = value >> 8;
            T low, b = T(0);
            if (binary) b = stack[top--];
            stack[top] = scalar(value & 0xff, stack[top], T(0), b, low);
        }
    }
    job.out[Long(job.expression) * job.n_points + point] = top < 0 ? T(nan("")) : stack[top];
}

#endif
