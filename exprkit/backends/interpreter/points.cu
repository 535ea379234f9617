// What the interpreter's operators do to the accumulator: POINTS points of a thread, in registers.
//
// Operands lie in shared memory (or in global memory, without COLUMNS_SHARED) or are an immediate.

#if !SUPPORT

//{tasks}

// ── shared memory by its 32-bit address ──────────────────────────────────────────────

//{VECTOR_BYTES}
//{LINE_BYTES}
constexpr unsigned SEGMENT_BYTES = SEGMENT * sizeof(T), TILE_BYTES = TILE * sizeof(T);

// The device's memory takes whole lines of LINE bytes best, and rows of results begin anywhere in one.  So a warp begins
// a tile up to MARGIN vectors early, at a line of its item's row.
constexpr unsigned LINE = TILE_BYTES < LINE_BYTES ? TILE_BYTES : LINE_BYTES;
constexpr int MARGIN = TASK == VALUES && WIDE ? LINE / VECTOR_BYTES - 1 : 0;
constexpr unsigned ROW_BYTES = TILE_BYTES + MARGIN * VECTOR_BYTES;  // of a column or slot

// Where rows begin at no multiple of 16 bytes, a vector holds points that are LANES apart: stores of a warp are dense.
constexpr bool SPREAD = TASK == VALUES && !WIDE;
INLINE int first_of_lane(int lane) { return SPREAD ? lane : lane * WIDTH; }
constexpr INLINE int offset_in_lane(int j, int k) { return j * SEGMENT + (SPREAD ? k * LANES : k); }

// Which of a lane's points (by their offsets) are points of the data.
struct Span {
    int first, stop;

    INLINE bool has(int offset) const { return (MARGIN == 0 || offset >= first) && offset < stop; }
};

#ifndef EMULATED
// The compiler would compute a generic pointer anew for every instruction of a program.
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

// Where a thread finds its first vector of an operand (a warp, in global memory); the others follow, a segment apart.
struct Place {
    unsigned shared;
    const T *global;  // only without COLUMNS_SHARED, and not for slots
    Long pitch;

    INLINE Vector load(int j) const
    {
        if (COLUMNS_SHARED || global == nullptr) return load_shared<Vector>(shared + j * SEGMENT_BYTES);
        return load_global(global + j * SEGMENT, threadIdx.x % LANES);
    }
    INLINE Place next() const { return Place{shared + ROW_BYTES, COLUMNS_SHARED || !global ? nullptr : global + pitch, pitch}; }
};

// acc = f(acc)
template <class F> INLINE void alone(T (&acc)[POINTS], F f)
{
#pragma unroll
    for (int k = 0; k < POINTS; ++k) acc[k] = f(acc[k]);
}

// acc = f(acc, immediate)
template <class F> INLINE void with_immediate(T (&acc)[POINTS], T immediate, F f)
{
#pragma unroll
    for (int k = 0; k < POINTS; ++k) acc[k] = f(acc[k], immediate);
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

INLINE void from_immediate(T (&acc)[POINTS], T immediate)
{
#pragma unroll
    for (int k = 0; k < POINTS; ++k) acc[k] = immediate;
}

INLINE void spill(const T (&acc)[POINTS], unsigned slot)
{
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        Vector v;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) v.at[k] = acc[j * WIDTH + k];
        store_shared(slot + j * SEGMENT_BYTES, v);
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

template <class F> INLINE void go_round(T (&acc)[POINTS], int mode, const Place &memory, T immediate, F f)
{
    const bool first = mode & FIRST, is_immediate = mode & IMMEDIATE;
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        Vector b;
        if (is_immediate) {
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) b.at[k] = immediate;
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
    go_round(acc, IMMEDIATE, Place{}, T(0), [usual](T a, T, bool &in_range) { return usual(a, in_range); }, [f](T a, T) { return f(a); });
}

template <class U, class F>
INLINE void go_round(T (&acc)[POINTS], int mode, const Place &memory, T immediate, U usual, F f)
{
    const bool first = mode & FIRST, is_immediate = mode & IMMEDIATE;
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        Vector other;
        if (!is_immediate) other = memory.load(j);
        T a[WIDTH], b[WIDTH], y[WIDTH];
        bool in_range = true;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const T operand = is_immediate ? immediate : other.at[k];
            a[k] = first ? operand : acc[k];
            b[k] = first ? acc[k] : operand;
            y[k] = usual(a[k], b[k], in_range);
        }
        if (!mostly(in_range)) {
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

// The same for operators that take a pair: its columns, slots or an immediate with the accumulator, or columns or slots
// with an immediate.
template <class U, class F>
INLINE void go_round_pair(T (&acc)[POINTS], int mode, const Place &memory, T high, T low, U usual, F f)
{
    const Place low_memory = memory.next();
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        Vector one, one_low;
        if (mode != PAIR_IMMEDIATE) {
            one = memory.load(j);
            one_low = low_memory.load(j);
        }
        T a[WIDTH], a_low[WIDTH], b[WIDTH], y[WIDTH];
        bool in_range = true;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            a[k] = mode == PAIR_IMMEDIATE ? high : one.at[k];
            a_low[k] = mode == PAIR_IMMEDIATE ? low : one_low.at[k];
            b[k] = mode == PAIR_AND_IMMEDIATE ? high : acc[k];
            y[k] = usual(b[k], a[k], a_low[k], in_range);
        }
        if (!mostly(in_range)) {
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

template <class F>
INLINE void go_round_pair(T (&acc)[POINTS], int mode, const Place &memory, T high, T low, F f)
{
    go_round_pair(acc, mode, memory, high, low, [f](T b, T a, T a_low, bool &) { return f(b, a, a_low); }, f);
}

#endif
