// The GPU interpreter: one launch runs a whole population on all of its data points.
//
// What is computed, plainly:
//
//     for tile of TILE points:                          (a block: the tile's columns in shared memory)
//         for item in (parameter set, expression):      (a warp takes the block's next few)
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
//     shared    what the block works on, each warp's next run, its strip of words, its scratch, [column][TILE],
//               target and weights, each warp's slots
//
// The host defines (cubins.py):
//
//     REAL          float or double                       LANES      32 (1 where a CPU runs this text)
//     VECTORS       16-byte vectors of a thread           BLOCK      threads of a block
//     TASK          VALUES, SQUARE or ABSOLUTE            REDUCTION  SHUFFLE, SHARED or ATOMIC
//     WIDE          1: rows of results begin at multiples of 16 bytes
//     WEIGHTED, COUNTED, COLUMNS_SHARED, APPROXIMATE_DIVISION, APPROXIMATE_ROOT    0 or 1
//     PAIRS         1 where the low parts of pairs are used
//     FLUSH         ".ftz" or "": what the hardware's approximations do with subnormals
//     SUPPORT       1: the kernels before and after, not the interpreter
//     MIN_BLOCKS    of one multiprocessor: limits the registers of a thread
//     STACK         deepest stack of the per-expression kernel
//     ADDERS        threads that add up an item's chunks: a power of two, 256 at the most
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

struct __align__(16) Run { int item, n_items, word, n_words; };  // word: the first, in the stream of all sets

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
    // work: unit u is slab u / n_tiles of the items on tile u % n_tiles; block b has units b, b + gridDim.x, ...
    const Run *runs;             // (n_slabs, n_runs) of consecutive items; those without items are the last of a slab
    // results
    T *out;                      // (items, n_points)
    T *partials;                 // (items, n_chunks)
    double *sums;                // (items)
    unsigned long long *nonfinite;  // (items, 2): nan, inf
    Long n_points, pitch, stride_point, stride_variable, n_items, first_chunk;
    int n_exprs, n_words, n_sets, max_params, n_columns, n_slots, n_results, n_chunks, add_to_sums;
    int first_tile, n_tiles, n_units, n_runs;
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
INLINE double analytic_quotient(double a, double b) { return a / hypot(1.0, b); }

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

// ── launches that overlap, from sm_90 on ─────────────────────────────────────────────

#ifndef EMULATED
// Let the next launch begin: it may prepare itself, and waits before it reads what this one writes.
INLINE void let_next_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Wait until the launch before has written everything.
INLINE void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#endif

#if !SUPPORT

// ── formulas for the usual operands ──────────────────────────────────────────────────

// Each makes ``holds`` false where the whole formula is needed: for zeros, infinities and what is very large or small, but
// not for nan that gives nan, which in random expressions is common.  They have no branches, so that those of many points
// run side by side.

#ifndef EMULATED
INLINE float flushed_reciprocal(float a)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
    return y;
}

INLINE float flushed_exp2(float a)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
    return y;
}
#endif

INLINE double usual_quotient(double a, double b, bool &) { return a / b; }
INLINE float usual_quotient(float a, float b, bool &holds)
{
    if (APPROXIMATE_DIVISION) return a / b;
    float r = flushed_reciprocal(b);
    r = fma(fma(-b, r, 1.0f), r, r);
    float y = a * r;
    y = fma(fma(-b, y, a), r, y);
    y = fma(fma(-b, y, a), r, y);  // rounded as it should be, unless something on the way was out of range
    const bool is_nan = a + b != a + b;  // or inf - inf, whose quotient is nan too
    holds = holds & (((fabs(a) >= 1e-21f) & (fabs(y) >= 1e-21f) & (fabs(y) <= 1e38f)) | is_nan);
    return y;
}

INLINE double usual_exp2_of_product(double high, double low, double b, bool &) { return exp2_of_product(high, low, b); }
INLINE float usual_exp2_of_product(float high, float low, float b, bool &holds)
{
    const float p = high * b, rest = (fma(high, b, -p) + low * b) * LN2;
    const float power = flushed_exp2(p), y = fma(power, rest, power);
    holds = holds & (((y == y) & (p >= -126.0f)) | ((p != p) & (high != 0.0f) & (b != 0.0f)));
    return y;
}

INLINE double usual_power(double a, double b, bool &) { return pow(a, b); }

// 2^(b log2 a) with log2 a in two parts, good to two units of the last place besides 2^x.
INLINE float usual_power(float a, float b, bool &holds)
{
    const int i = __float_as_int(a), k = (i - 0x3f3504f3) >> 23;  // a = m 2^k, m from sqrt(1/2) to sqrt(2)
    const float m = __int_as_float(i - (k << 23)), whole = __int_as_float(0x4b400000 + k) - 12582912.0f;
    // log2 m = 2 / ln 2 (s + s^3 / 3 + s^5 / 5 + ...) with s = (m - 1) / (m + 1); s in two parts
    const float t = fma(0.0f, a, m - 1.0f), u = m + 1.0f, u_low = m - (u - 1.0f), r = flushed_reciprocal(u);
    const float s = t * r, s_low = fma(-s, u_low, fma(-s, u, t)) * r, q = s * s;
    const float rest = q * fma(fma(fma(0.1179143041f, q, 0.1426863670f), q, 0.2000016719f), q, 0.3333333433f);
    const float scale = 2.8853900432586670f, scale_low = 3.8519260e-8f;  // 2 / ln 2
    const float y = s * scale;
    const float y_low = fma(fma(s, rest, s_low), scale, fma(s, scale_low, fma(s, scale, -y)));
    const float sum = whole + y, left = (whole - sum) + y + y_low, high = sum + left, low = (sum - high) + left;
    const float p = high * b, p_low = (fma(high, b, -p) + low * b) * LN2, power = flushed_exp2(p);
    const bool is_nan = ((a != a) & (b != 0.0f)) | ((b != b) & (a != 1.0f));
    holds = holds & (((a >= 1.17549435e-38f) & (a <= 3.4e38f) & (fabs(p) <= 32.0f)) | is_nan);
    return fma(power, p_low, power);
}

// ── shared memory by its 32-bit address ──────────────────────────────────────────────

constexpr unsigned VECTOR_BYTES = 16, CHUNK_BYTES = CHUNK * sizeof(T), TILE_BYTES = TILE * sizeof(T);

// The device's memory takes whole lines of LINE bytes best, and rows of results begin anywhere in one.  So a warp begins
// a tile up to MARGIN vectors early, at a line of its item's row.
constexpr unsigned LINE = TILE_BYTES < 256 ? TILE_BYTES : 256;
constexpr int MARGIN = TASK == VALUES && WIDE ? LINE / VECTOR_BYTES - 1 : 0;
constexpr unsigned ROW_BYTES = TILE_BYTES + MARGIN * VECTOR_BYTES;  // of a column or slot

// Where rows begin at no multiple of 16 bytes, a vector holds points that are LANES apart: stores of a warp are dense.
constexpr bool SPREAD = TASK == VALUES && !WIDE;
INLINE int first_of_lane(int lane) { return SPREAD ? lane : lane * WIDTH; }
constexpr INLINE int offset_in_lane(int j, int k) { return j * CHUNK + (SPREAD ? k * LANES : k); }

// Which of a lane's points (by their offsets) are points of the data.
struct Span {
    int first, stop;

    INLINE bool has(int offset) const { return (MARGIN == 0 || offset >= first) && offset < stop; }
};

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

// 16 bytes from global to shared memory, past the registers.
template <class V> INLINE void begin_copy(unsigned to, const V *from)
{
    static_assert(sizeof(V) == 16);
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
#else
    store_shared(to, *from);
#endif
}

// What was begun since the last call belongs together.
INLINE void group_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Wait for all of this thread's groups but the last PENDING.
template <int PENDING> INLINE void end_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
#endif
}
#endif

// This lane's vector of a column from ``at`` on.
INLINE Vector load_global(const T *at, int lane)
{
    if (!SPREAD) return *reinterpret_cast<const Vector *>(at + lane * WIDTH);
    Vector v;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) v.at[k] = at[k * LANES + lane];
    return v;
}

// ── an operator on all points of a thread ────────────────────────────────────────────

// Where a thread finds its first vector of an operand (a warp, in global memory); the others follow, a chunk apart.
struct Place {
    unsigned shared;
    const T *global;  // only without COLUMNS_SHARED, and not for slots
    Long pitch;

    INLINE Vector load(int j) const
    {
        if (COLUMNS_SHARED || global == nullptr) return load_shared<Vector>(shared + j * CHUNK_BYTES);
        return load_global(global + j * CHUNK, threadIdx.x % LANES);
    }
    INLINE Place next() const { return Place{shared + ROW_BYTES, COLUMNS_SHARED ? nullptr : global + pitch, pitch}; }
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

// The same with a formula for the usual operands.  Where it does not hold for all of a lane's points of a round, it still
// is what counts for those where it does: neighbours change no bits.

INLINE bool mostly(bool yes)
{
#ifdef EMULATED
    return yes;
#else
    return __builtin_expect(yes, 1);
#endif
}

template <class U, class F> INLINE void go_round(T (&acc)[POINTS], U usual, F f)
{
    go_round(acc, 2, Place{}, T(0), [usual](T a, T, bool &holds) { return usual(a, holds); }, [f](T a, T) { return f(a); });
}

template <class U, class F>
INLINE void go_round(T (&acc)[POINTS], int form, const Place &memory, T number, U usual, F f)
{
    const bool first = form & 1, is_number = form & 2;
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        Vector other;
        if (!is_number) other = memory.load(j);
        T a[WIDTH], b[WIDTH], y[WIDTH];
        bool holds = true;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const T operand = is_number ? number : other.at[k];
            a[k] = first ? operand : acc[k];
            b[k] = first ? acc[k] : operand;
            y[k] = usual(a[k], b[k], holds);
        }
        if (!mostly(holds)) {
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) {
                bool here = true;
                usual(a[k], b[k], here);
                const T whole = f(a[k], b[k]);
                y[k] = here ? y[k] : whole;
            }
        }
        shift_in(acc, y);
    }
}

// The same for operators that take a pair: its columns (form 0) or numbers (1) with the accumulator, or columns
// with a number (2).
template <class U, class F>
INLINE void go_round_pair(T (&acc)[POINTS], int form, const Place &memory, T high, T low, U usual, F f)
{
    const Place low_memory = memory.next();
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        Vector one, one_low;
        if (form != 1) {
            one = memory.load(j);
            one_low = low_memory.load(j);
        }
        T a[WIDTH], a_low[WIDTH], b[WIDTH], y[WIDTH];
        bool holds = true;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            a[k] = form == 1 ? high : one.at[k];
            a_low[k] = form == 1 ? low : one_low.at[k];
            b[k] = form == 2 ? high : acc[k];
            y[k] = usual(b[k], a[k], a_low[k], holds);
        }
        if (!mostly(holds)) {
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) {
                bool here = true;
                usual(b[k], a[k], a_low[k], here);
                const T whole = f(b[k], a[k], a_low[k]);
                y[k] = here ? y[k] : whole;
            }
        }
        shift_in(acc, y);
    }
}

// ── what becomes of an item's values ─────────────────────────────────────────────────

// Where a thread's results of the current item go.
struct Sink {
    T *row;             // VALUES: the tile's first point
    T *partial;         // else: the (first) sum that this lane writes
    unsigned target;    // this lane's first target value; one tile on, the weights
    int left;           // points of the data from the tile's first one on, TILE at the most
    bool is_first;      // the tile begins with the first point
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

constexpr bool SCATTERED = REDUCTION == SHUFFLE && LANES > 1 && (VECTORS == 2 || VECTORS == 4 || VECTORS == 8);

// Which chunk's sum a lane writes first.
INLINE int own_chunk(int lane) { return SCATTERED ? lane / (LANES / VECTORS) : 0; }

INLINE int sums_written(int lane, int present)
{
    if (SCATTERED) return lane % (LANES / VECTORS) == 0 && own_chunk(lane) < present;
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

template <bool WHOLE> INLINE void measure(const T (&acc)[POINTS], T (&sum)[VECTORS], const Sink &sink, int lane)
{
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const Vector y = load_shared<Vector>(sink.target + j * CHUNK_BYTES);
        const Vector w = WEIGHTED ? load_shared<Vector>(sink.target + TILE_BYTES + j * CHUNK_BYTES) : y;
        sum[j] = T(0);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const bool counts = WEIGHTED ? w.at[k] != T(0) : WHOLE || j * CHUNK + lane * WIDTH + k < sink.left;
            const T error = counts ? acc[j * WIDTH + k] - y.at[k] : T(0);
            const T weighted = WEIGHTED ? w.at[k] * error : error;
            if (TASK == SQUARE) sum[j] = k == 0 ? weighted * error : fma(weighted, error, sum[j]);
            else sum[j] = k == 0 ? fabs(weighted) : sum[j] + fabs(weighted);
        }
    }
}

INLINE void add_up(const Job &job, const T (&acc)[POINTS], int item, const Sink &sink, T *scratch, int lane)
{
    T sum[VECTORS];
    if (sink.left == TILE) measure<true>(acc, sum, sink, lane);
    else measure<false>(acc, sum, sink, lane);
    if (REDUCTION == ATOMIC) {
        double all = 0.0;
        for (int c = 0; c < VECTORS; ++c) all += double(sum[c]);
        atomicAdd(job.sums + item, all);
        return;
    }
    if (REDUCTION == SHARED)
        for (int c = 0; c < VECTORS; ++c) sum[c] = add_lanes_shared(sum[c], scratch, lane);
    else
        add_lanes_shuffle(sum, lane);
    const int n_written = sums_written(lane, (sink.left + CHUNK - 1) / CHUNK);
    if (SCATTERED) {
        if (n_written) *sink.partial = sum[0];
    } else {
#pragma unroll
        for (int c = 0; c < VECTORS; ++c) if (c < n_written) sink.partial[c] = sum[c];
    }
}

// By how many vectors an item's results begin before the tile.
INLINE int early_by(const T *row)
{
    return MARGIN ? int(unsigned(reinterpret_cast<size_t>(row)) / VECTOR_BYTES % (LINE / VECTOR_BYTES)) : 0;
}

INLINE Span span(const Sink &sink, int early, int lane)
{
    const int begin = first_of_lane(lane) - early * WIDTH;
    return Span{sink.is_first ? -begin : 0, sink.left - begin};
}

template <bool WHOLE> INLINE void write(const T (&acc)[POINTS], const Sink &sink, int early, int lane)
{
    const Span present = span(sink, early, lane);
    T *at = sink.row - early * WIDTH + first_of_lane(lane);
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
#pragma unroll
        for (int k = 0; k < WIDTH; k += WIDE ? WIDTH : 1) {
            const int offset = offset_in_lane(j, k);
            if (!WHOLE && !present.has(offset)) continue;
            if (WIDE) {
                Vector v;
#pragma unroll
                for (int i = 0; i < WIDTH; ++i) v.at[i] = acc[j * WIDTH + i];
                __stcs(reinterpret_cast<uint4 *>(at + offset), *reinterpret_cast<uint4 *>(&v));
            } else {
                __stcs(at + offset, acc[j * WIDTH + k]);
            }
        }
    }
}

// The weight of a lane's point in a loss.
INLINE T weight_of(const Sink &sink, int j, int k)
{
    return load_shared<Vector>(sink.target + TILE_BYTES + j * CHUNK_BYTES).at[k];
}

INLINE void count_nonfinite(const Job &job, const T (&acc)[POINTS], int item, const Sink &sink, int early, int lane)
{
    const Span present = span(sink, early, lane);
    unsigned found = 0;  // nan in the low half, inf in the high
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const T a = acc[j * WIDTH + k];
            if (present.has(offset_in_lane(j, k)) && (TASK == VALUES || !WEIGHTED || weight_of(sink, j, k) != T(0)))
                found += a != a ? 1u : fabs(a) > T(LARGEST) ? 1u << 16 : 0u;
        }
    }
    for (int step = LANES / 2; step > 0; step /= 2) found += __shfl_xor_sync(0xffffffffu, found, step);
    if (lane == 0 && found) {
        unsigned long long *count = job.nonfinite + 2 * Long(item);
        if (found & 0xffffu) atomicAdd(count, (unsigned long long)(found & 0xffffu));
        if (found >> 16) atomicAdd(count + 1, (unsigned long long)(found >> 16));
    }
}

// ── the interpreter ──────────────────────────────────────────────────────────────────

// Where a warp finds things; the shared ones without the lane's share.
struct Frame {
    unsigned coming, strip, tile, slots;  // coming: the warp's next run; the one after that takes turns with it
    const T *columns;  // first point of column 0, MARGIN early, without COLUMNS_SHARED
    T *scratch;
};

// A word and its number.  Nothing may be computed of them here: they are on their way, and a warp would wait for them.
INLINE Record fetch(const Job &job, int word)
{
    const Word w = job.words[word % job.n_words];
    return Record{w.action, w.places, job.numbers[word]};
}

// A word for the strip: its column and slot become addresses in units of vectors.
INLINE Record placed(const Frame &frame, const Record &word)
{
    if (!COLUMNS_SHARED) return word;
    const unsigned of_operand = word.action & SLOT ? frame.slots : frame.tile;
    const unsigned operand = (of_operand + (word.places & 0xffffu) * ROW_BYTES) / VECTOR_BYTES;
    const unsigned loaded = (frame.tile + (word.places >> 16) * ROW_BYTES) / VECTOR_BYTES;
    return Record{word.action, loaded << 16 | operand, word.number};
}

INLINE Place find(const Job &job, const Frame &frame, unsigned place, bool slot, unsigned lane_bytes)
{
    if (COLUMNS_SHARED) return Place{place * VECTOR_BYTES + lane_bytes, nullptr, 0};
    const T *columns = frame.columns + place * job.pitch + (lane_bytes / VECTOR_BYTES - threadIdx.x % LANES) * WIDTH;
    return Place{frame.slots + place * ROW_BYTES + lane_bytes, slot ? nullptr : columns, job.pitch};
}

// Where in the row of a column or slot a lane finds its first vector of an item.
INLINE unsigned lane_place(const T *row, int lane) { return (lane + MARGIN - early_by(row)) * VECTOR_BYTES; }

// Run ``run``; ``next`` holds its first words, and then those of the run behind it.
INLINE void execute(const Job &job, const Frame &frame, Sink &sink, const Run &run, Record &next, int lane)
{
    const unsigned strip_end = frame.strip + LANES * sizeof(Record);
    unsigned lane_bytes = lane_place(sink.row, lane);
    int word = run.word + lane, words_left = run.n_words, item = run.item, left = run.n_items;
    unsigned cursor = strip_end;
    T acc[POINTS];
    while (true) {
        if (cursor == strip_end) {
            cursor = frame.strip;
            __syncwarp();
            store_shared(cursor + lane * unsigned(sizeof(Record)), placed(frame, next));
            __syncwarp();
            word += LANES;
            words_left -= LANES;
            if (words_left <= 0) {  // of this run; the next one follows
                end_copies<1>();
                __syncwarp();
                word = load_shared<Run>(frame.coming).word + lane;
            }
            next = fetch(job, word);
        }
        const Record now = load_shared<Record>(cursor);
        cursor += sizeof(Record);
        const unsigned action = now.action;
        if (action & SPILL) {
            if (MARGIN) __syncwarp();  // of the item before, this place may have been another lane's
            spill(acc, frame.slots + (action >> 8 & 0xffu) * ROW_BYTES + lane_bytes);
        }
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
            if (COUNTED) count_nonfinite(job, acc, item, sink, early_by(sink.row), lane);
            const bool whole = sink.left == TILE && (MARGIN == 0 || !sink.is_first);
            if (TASK == VALUES && whole) write<true>(acc, sink, early_by(sink.row), lane);
            else if (TASK == VALUES) write<false>(acc, sink, early_by(sink.row), lane);
            else add_up(job, acc, item, sink, frame.scratch, lane);
            if (--left == 0) return;
            ++item;
            sink.row += job.n_points;
            sink.partial += job.n_chunks;
            if (MARGIN) lane_bytes = lane_place(sink.row, lane);
        }
    }
}

// Begin to copy the tile of all columns at point ``start``, MARGIN early, into shared memory.
INLINE void load_columns(const Job &job, unsigned tile, Long start)
{
    constexpr int N = ROW_BYTES / VECTOR_BYTES;
    for (int i = threadIdx.x; i < job.n_columns * N; i += BLOCK) {
        const T *column = job.columns + i / N * job.pitch + start - MARGIN * WIDTH;
        if (SPREAD) store_shared(tile + i * VECTOR_BYTES, load_global(column + i % N / LANES * CHUNK, i % N % LANES));
        else begin_copy(tile + i * VECTOR_BYTES, reinterpret_cast<const Vector *>(column + i % N * WIDTH));
    }
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

// What a block works on; in shared memory, since registers are short.
struct __align__(16) Unit {
    int number, tile;
    int next_run, stop;  // that a warp can take, and the first that is not the slab's
};

// Have run ``r`` of a slab brought to ``to``, by lane 0; one without items from ``stop`` on.
INLINE void bring_run(unsigned to, const Run *runs, int r, int stop)
{
    if (r < stop) begin_copy(to, runs + r);
    else store_shared(to, Run{0, 0, 0, 0});
    group_copies();
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) interpret(const Job job)
{
    extern __shared__ __align__(32) Vector shared[];
    volatile Unit *now = reinterpret_cast<volatile Unit *>(shared);
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int n_rows = COLUMNS_SHARED ? job.n_columns : 0, n_targets = TASK == VALUES ? 0 : 1 + WEIGHTED;
    const unsigned base = shared_address(shared) + (2 + 2 * WARPS) * VECTOR_BYTES, scratches = base + BLOCK * sizeof(Record);
    const unsigned tile = scratches + (REDUCTION == SHARED ? (BLOCK * sizeof(T) + 15) / 16 * 16 : 0);
    const unsigned targets = tile + n_rows * ROW_BYTES, slots = targets + n_targets * TILE_BYTES;
    Frame frame;
    frame.coming = base - (2 + 2 * warp) * VECTOR_BYTES;
    frame.strip = base + warp * LANES * unsigned(sizeof(Record));
    frame.tile = tile;
    frame.slots = slots + warp * job.n_slots * ROW_BYTES;
    frame.scratch = reinterpret_cast<T *>(reinterpret_cast<Record *>(shared + 2 + 2 * WARPS) + BLOCK) + warp * LANES;
    Sink sink;
    sink.target = targets + lane * VECTOR_BYTES;
    let_next_begin();
    for (int unit = blockIdx.x; unit < job.n_units; unit = now->number + gridDim.x) {
        const int slab = unit / job.n_tiles, t = job.first_tile + unit % job.n_tiles;
        const int r = slab * job.n_runs + warp, stop = (slab + 1) * job.n_runs;
        const Long start = Long(t) * TILE;
        __syncthreads();
        if (threadIdx.x == 0) {
            now->number = unit, now->tile = t;
            now->next_run = r + 2 * WARPS, now->stop = stop;
        }
        if (COLUMNS_SHARED) load_columns(job, tile, start);
        Run run = r < stop ? job.runs[r] : Run{0, 0, 0, 0};
        if (lane == 0) bring_run(frame.coming, job.runs, r + WARPS, stop);
        if (unit == blockIdx.x) wait_for_previous();
        Record next = fetch(job, run.word + lane);
        if (n_targets > 0) load_values(job, targets, job.target, start);
        if (n_targets > 1) load_values(job, targets + TILE_BYTES, job.weights, start);
        end_copies<0>();
        __syncthreads();
        frame.columns = job.columns + start - MARGIN * WIDTH;
        sink.left = int(min(job.n_points - start, Long(TILE)));
        sink.is_first = start == 0;
        while (run.n_items > 0) {
            const unsigned other = frame.coming ^ VECTOR_BYTES;
            __syncwarp();
            if (lane == 0) bring_run(other, job.runs, atomicAdd((int *)&now->next_run, 1), now->stop);
            sink.row = job.out + run.item * job.n_points + Long(now->tile) * TILE;
            sink.partial = job.partials + Long(run.item) * job.n_chunks + own_chunk(lane);
            sink.partial += Long(now->tile) * VECTORS - job.first_chunk;
            execute(job, frame, sink, run, next, lane);
            run = load_shared<Run>(frame.coming);
            frame.coming = other;
        }
        end_copies<0>();
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

// The last result of a prologue, which is mostly what is wanted.
struct Last {
    int index;
    Number number;
};

INLINE Number find(const Job &job, int source, Long row, const T *results, const Last &last)
{
    const int index = source >> 2;
    switch (source & 3) {
    case PARAMETER: return Number{job.params[row * job.max_params + index], T(0)};
    case CONSTANT: return Number{job.constants[index], T(0)};
    case RESULT: return index == last.index ? last.number : Number{results[index], results[index + 1]};
    }
    return Number{T(0), T(0)};
}

// The numbers of one expression with one parameter set, a thread: run its prologue, then fill in its words' numbers.
// What takes time is how often a load waits for one before it, so the first word's source is read early.
extern "C" __global__ void make_numbers(const Job job)
{
    let_next_begin();
    wait_for_previous();  // which may have made the parameters, and reads the numbers
    const unsigned row = blockIdx.x * blockDim.x + threadIdx.x, n_exprs = job.n_exprs;
    if (row >= job.n_sets * n_exprs) return;
    const unsigned set = row / n_exprs, e = row % n_exprs;
    const int first = job.first_step[e], end = job.first_step[e + 1], word = job.first_word[e];
    const int stop = e + 1 < n_exprs ? job.first_word[e + 1] : job.n_words;
    int source = job.sources[word];
    T *results = job.results + Long(set) * job.n_results;
    Last last{-1, Number{T(0), T(0)}};
    for (int s = first; s < end; ++s) {
        const Step step = job.steps[s];
        const Number a = find(job, step.a, row, results, last), b = find(job, step.b, row, results, last);
        T low;
        const T y = scalar(step.code, a.high, a.low, b.high, low);
        last = Last{step.result >> 1, Number{y, low}};
        results[last.index] = y;
        if (step.result & 1) results[last.index + 1] = low;
    }
    Number *numbers = job.numbers + Long(set) * job.n_words;
    for (int w = word; w < stop; ++w) {
        const int now = source;
        if (w + 1 < stop) source = job.sources[w + 1];
        if (now) numbers[w] = find(job, now, row, results, last);
    }
}

// Sum of an item's chunks in float64 by ADDERS threads; the order depends on nothing but how many chunks there are.
extern "C" __global__ void add_chunks(const Job job)
{
    __shared__ double sums[LANES > 1 ? 256 : 1];
    const Long row = (Long(blockIdx.x) * blockDim.x + threadIdx.x) / ADDERS;
    const int adder = threadIdx.x % ADDERS, here = LANES > 1 ? threadIdx.x : 0;
    wait_for_previous();
    double sum = 0.0;
    if (row < job.n_items) {
#pragma unroll 8
        for (int c = adder; c < job.n_chunks; c += ADDERS) sum += double(job.partials[row * job.n_chunks + c]);
    }
    sums[here] = sum;
    for (int step = ADDERS / 2; step > 0; step /= 2) {
        __syncthreads();
        if (adder < step) sums[here] += sums[here + step];
    }
    if (adder == 0 && row < job.n_items) job.sums[row] = job.add_to_sums ? job.sums[row] + sums[here] : sums[here];
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
