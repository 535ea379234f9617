// Values with derivatives: what a program does to an accumulator that has TANGENTS derivatives beside every value: the dual
// parts.  The host joins it behind common.cu and arithmetic.cu; equations.cu and fit.cu follow.  Programs are those of the
// interpreter, instructions with an accumulator.  A value that does not depend on a parameter has no tangent for it, and
// what an operator's derivative is there (perhaps inf) does not matter; ``active`` has a bit for each tangent that counts.
//
// The host defines, besides the macros of common.cu:
//
//     TANGENTS      1 to 4                                    RARE      1 where uncommon operators are used
//     ENTRY_BYTES   the size of an entry                      FITS      of a block, each by BLOCK threads

constexpr double MOST = 1.7976931348623157e308;

// An instruction of a program, with its number and the number's derivatives.
struct __align__(16) Entry { unsigned action, places; T high, low; T tangent[TANGENTS + TANGENTS % 2]; };
static_assert(sizeof(Entry) == ENTRY_BYTES, "the host and the kernel disagree about an entry");

// ── approximations ───────────────────────────────────────────────────────────────────

// A derivative divides by what its value divides by: as a product with the reciprocal the two share the latter.
INLINE double shared_quotient(double a, double b) { return a / b; }
INLINE float shared_quotient(float a, float b) { return APPROXIMATE_DIVISION ? a * approximate_reciprocal(b) : a / b; }
#define quotient shared_quotient

// In a derivative 0 times anything is 0, also beside inf and nan: what does not change with a parameter has no slope.
INLINE T strong_product(T a, T b) { return a == T(0) || b == T(0) ? T(0) : a * b; }
INLINE T strong_quotient(T a, T b) { return a == T(0) ? T(0) : a / b; }
INLINE T strong_fast_quotient(T a, T b) { return a == T(0) ? T(0) : quotient(a, b); }
INLINE T with_strong_product(T sum, T a, T b) { return a == T(0) || b == T(0) ? sum : fma(a, b, sum); }

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

// Which one of the BLOCK threads this is that work at one expression, and which of the block's FITS that is.
INLINE int thread() { return FITS > 1 ? threadIdx.x % BLOCK : threadIdx.x; }
INLINE int place() { return FITS > 1 ? threadIdx.x / BLOCK : 0; }

// Wait for the threads that work at this expression.
INLINE void sync()
{
    if (WARPS == 1) __syncwarp();
    else if (FITS == 1) __syncthreads();
#ifndef EMULATED
    else asm volatile("bar.sync %0, %1;" :: "r"(1 + place()), "n"(BLOCK) : "memory");
#endif
}

// ── values with tangents ─────────────────────────────────────────────────────────────

// Where this lane finds the operands of its points.
struct Frame {
    const T *columns;
    Vector *slots;
    unsigned *actives;
    unsigned pitch;

    INLINE const T *column(unsigned index) const { return columns + (unsigned long long)(index) * pitch; }
    INLINE Frame at(int point) const { return Frame{columns + point, slots, actives, pitch}; }
};

INLINE unsigned active_of(const Entry &now) { return now.action >> ACTIVE_SHIFT & 15u; }
INLINE Vector vector_of(const T *column, int j) { return *reinterpret_cast<const Vector *>(column + j * SEGMENT); }

// ── operators that are called ────────────────────────────────────────────────────────

#if RARE
// What an operator makes of WIDTH points; ``has_slope``: bit 0 where a tangent of operand a goes on, bit 1 of b.
struct Made { Vector y, da, db; unsigned has_slope; };

// Their code is a function of its own, for all addressing modes of an operator, and for prologues: a compiler is done with
// it sooner than with kernels that have it inside, and those need no registers for it.
struct Called {
    Vector a, b;
    unsigned wants;  // derivatives: bit 0 by a, bit 1 by b
    bool strong;

    INLINE T strong_product(T a, T b) const { return strong ? ::strong_product(a, b) : a * b; }
    INLINE T strong_quotient(T a, T b) const { return strong ? ::strong_quotient(a, b) : a / b; }
    INLINE T strong_fast_quotient(T a, T b) const { return strong ? ::strong_fast_quotient(a, b) : quotient(a, b); }

    template <class F, class A, class B> INLINE Made made_by(unsigned has_slope, F f, A by_a, B by_b) const
    {
        Made made;
        made.has_slope = has_slope;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            made.y.at[k] = f(a.at[k], b.at[k]);
            made.da.at[k] = made.db.at[k] = T(0);
        }
        if (has_slope & wants & 1)
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) made.da.at[k] = by_a(a.at[k], b.at[k], made.y.at[k]);
        if (has_slope & wants & 2)
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) made.db.at[k] = by_b(a.at[k], b.at[k], made.y.at[k]);
        return made;
    }

    // The same, point after point: of code with many branches, which points go through one after the other anyway.
    template <class F, class A, class B> INLINE Made made_in_turn(unsigned has_slope, F f, A by_a, B by_b) const
    {
        Made made;
        made.has_slope = has_slope;
#pragma unroll 1
        for (int k = 0; k < WIDTH; ++k) {
            const T y = f(a.at[k], b.at[k]);
            made.y.at[k] = y;
            made.da.at[k] = has_slope & wants & 1 ? by_a(a.at[k], b.at[k], y) : T(0);
            made.db.at[k] = has_slope & wants & 2 ? by_b(a.at[k], b.at[k], y) : T(0);
        }
        return made;
    }

    INLINE Made made(int code) const
    {
        switch (code) {
        //{called cases}
        default: __builtin_unreachable();
        }
    }
};

__device__ __noinline__ Made called(int code, Vector a, Vector b, unsigned wants, bool strong)
{
    return Called{a, b, wants, strong}.made(code);
}

//{of three}
#ifdef OF_THREE
// What a function of three operands makes of WIDTH points, with strong zeros; ``wants`` and ``has_slope``: bit k for
// operand k.
struct MadeOfThree { Vector y, by[3]; unsigned has_slope; };

template <class F, class A, class B, class C>
INLINE MadeOfThree made_of_three(unsigned has_slope, Vector a, Vector b, Vector c, unsigned wants, F f, A by_a, B by_b, C by_c)
{
    MadeOfThree made;
    made.has_slope = has_slope;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
        const T y = f(a.at[k], b.at[k], c.at[k]);
        made.y.at[k] = y;
        made.by[0].at[k] = has_slope & wants & 1 ? by_a(a.at[k], b.at[k], c.at[k], y) : T(0);
        made.by[1].at[k] = has_slope & wants & 2 ? by_b(a.at[k], b.at[k], c.at[k], y) : T(0);
        made.by[2].at[k] = has_slope & wants & 4 ? by_c(a.at[k], b.at[k], c.at[k], y) : T(0);
    }
    return made;
}

__device__ __noinline__ MadeOfThree called_of_three(int code, Vector a, Vector b, Vector c, unsigned wants)
{
    switch (code) {
    //{made of three}
    default: __builtin_unreachable();
    }
}
#endif

// The operator's code that an opcode stands for, and its addressing mode << CODE_BITS.
constexpr int CODE_BITS = 8;
INLINE int operator_of(int opcode)
{
    switch (opcode) {
    //{called opcodes}
    default: __builtin_unreachable();
    }
}
#endif

// ── operators, and programs of them ──────────────────────────────────────────────────

// What operators do to an accumulator.  Where not STRONG, products are the plain ones, which is much faster: who finds
// a nan among his sums, which is rare, makes them once more with STRONG.
template <bool STRONG> struct Operators {
    static constexpr int N_VECTORS = STRONG ? 1 : VECTORS, N = N_VECTORS * WIDTH;

    // The accumulator: N values and their derivatives; a tangent that is not active is 0.
    struct Dual {
        T value[N], tangent[TANGENTS][N];
        unsigned active;

        INLINE bool has(int t) const { return active >> t & 1; }
    };

    // The other operand of an operator of long code: WIDTH points of it and their tangents.
    struct Other { Vector value, tangent[TANGENTS]; unsigned active; };

    static INLINE T strong_product(T a, T b) { return STRONG ? ::strong_product(a, b) : a * b; }
    static INLINE T strong_quotient(T a, T b) { return STRONG ? ::strong_quotient(a, b) : a / b; }
    static INLINE T strong_fast_quotient(T a, T b) { return STRONG ? ::strong_fast_quotient(a, b) : quotient(a, b); }
    static INLINE T with_strong_product(T sum, T a, T b)
    {
        return STRONG ? ::with_strong_product(sum, a, b) : fma(a, b, sum);
    }

    // A part (value, or one tangent) of a slot.
    static INLINE Vector *part_of(Vector *slot, int part, int j) { return slot + (part * N_VECTORS + j) * LANES; }

    static INLINE Vector *slot_of(const Frame &frame, unsigned index)
    {
        return frame.slots + index * (1 + TANGENTS) * N_VECTORS * LANES;
    }

    static INLINE void load(Dual &acc, const T *column)
    {
        acc.active = 0;
#pragma unroll
        for (int j = 0; j < N_VECTORS; ++j) {
            const Vector v = vector_of(column, j);
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) acc.value[j * WIDTH + k] = v.at[k];
        }
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t)
#pragma unroll
            for (int k = 0; k < N; ++k) acc.tangent[t][k] = T(0);
    }

    static INLINE void spill(const Dual &acc, const Frame &frame, unsigned index)
    {
        Vector *slot = slot_of(frame, index);
        frame.actives[index * LANES] = acc.active;
#pragma unroll
        for (int part = 0; part <= TANGENTS; ++part)
#pragma unroll
            for (int j = 0; j < N_VECTORS; ++j) {
                const T (&from)[N] = part ? acc.tangent[part ? part - 1 : 0] : acc.value;
                Vector v;
#pragma unroll
                for (int k = 0; k < WIDTH; ++k) v.at[k] = from[j * WIDTH + k];
                *part_of(slot, part, j) = v;
            }
    }

    // Move all points up by one vector; ``y`` becomes the last.
    static INLINE void shift_in(T (&all)[N], const T (&y)[WIDTH])
    {
#pragma unroll
        for (int k = 0; k < N - WIDTH; ++k) all[k] = all[k + WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) all[N - WIDTH + k] = y[k];
    }

    // The chain rule for the accumulator's own tangents.  The compiler would compute and then choose; it shall branch.
    static INLINE void chain(Dual &acc, const T (&da)[N])
    {
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) {
            if (!acc.has(t)) continue;
            asm volatile("");
#pragma unroll
            for (int k = 0; k < N; ++k) acc.tangent[t][k] = strong_product(acc.tangent[t][k], da[k]);
        }
    }

    // Only these tangents are left: of an operator that has no slope by what the others came from.
    static INLINE void only(Dual &acc, unsigned active)
    {
        acc.active &= active;
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t)
#pragma unroll
            for (int k = 0; k < N; ++k) acc.tangent[t][k] = acc.has(t) ? acc.tangent[t][k] : T(0);
    }

    // acc = f(acc)
    template <class F> static INLINE void alone(Dual &acc, F f)
    {
        T da[N];
#pragma unroll
        for (int k = 0; k < N; ++k) acc.value[k] = f(acc.value[k], da[k]);
        chain(acc, da);
    }

    // acc = immediate
    static INLINE void from_immediate(Dual &acc, const Entry &now)
    {
        acc.active = active_of(now);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            acc.value[k] = now.high;
#pragma unroll
            for (int t = 0; t < TANGENTS; ++t) acc.tangent[t][k] = now.tangent[t];
        }
    }

    // acc = f(acc, immediate)
    template <class F> static INLINE void with_immediate(Dual &acc, const Entry &now, F f)
    {
        const unsigned active = active_of(now);
        T da[N], db[N];
#pragma unroll
        for (int k = 0; k < N; ++k) acc.value[k] = f(acc.value[k], now.high, da[k], db[k]);
        chain(acc, da);
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) {
            if (!(active >> t & 1)) continue;
            asm volatile("");
#pragma unroll
            for (int k = 0; k < N; ++k) acc.tangent[t][k] = with_strong_product(acc.tangent[t][k], db[k], now.tangent[t]);
        }
        acc.active |= active;
    }

    // acc = f(acc, column)
    template <class F> static INLINE void with_column(Dual &acc, const T *column, F f)
    {
        T da[N], db;
#pragma unroll
        for (int j = 0; j < N_VECTORS; ++j) {
            const Vector b = vector_of(column, j);
#pragma unroll
            for (int k = j * WIDTH; k < (j + 1) * WIDTH; ++k) acc.value[k] = f(acc.value[k], b.at[k % WIDTH], da[k], db);
        }
        chain(acc, da);
    }

    // acc = f(acc, slot)
    template <class F> static INLINE void with_slot(Dual &acc, const Frame &frame, unsigned index, F f)
    {
        Vector *slot = slot_of(frame, index);
        const unsigned active = frame.actives[index * LANES];
#pragma unroll
        for (int j = 0; j < N_VECTORS; ++j) {
            const Vector b = *part_of(slot, 0, j);
            T da[WIDTH], db[WIDTH];
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) acc.value[j * WIDTH + k] = f(acc.value[j * WIDTH + k], b.at[k], da[k], db[k]);
#pragma unroll
            for (int t = 0; t < TANGENTS; ++t) {
                const Vector tangent = *part_of(slot, 1 + t, j);
#pragma unroll
                for (int k = 0; k < WIDTH; ++k) {
                    T &mine = acc.tangent[t][j * WIDTH + k];
                    if (acc.has(t)) mine = strong_product(mine, da[k]);
                    if (active >> t & 1) mine = with_strong_product(mine, db[k], tangent.at[k]);
                }
            }
        }
        acc.active |= active;
    }

    // acc = f(acc, column or slot)
    template <class F> static INLINE void with_memory(Dual &acc, const Frame &frame, const Entry &now, F f)
    {
        const unsigned index = now.places & OPERAND;
        if (now.action & FROM_SLOT) with_slot(acc, frame, index, f);
        else with_column(acc, frame.column(index), f);
    }

    // acc = f(acc, pair of columns)
    template <class F> static INLINE void with_pair(Dual &acc, const Frame &frame, const Entry &now, F f)
    {
        const T *high = frame.column(now.places & OPERAND), *low = high + frame.pitch;
        T da[N], db;
#pragma unroll
        for (int j = 0; j < N_VECTORS; ++j) {
            const Vector a = vector_of(high, j), a_low = PAIRS ? vector_of(low, j) : a;
#pragma unroll
            for (int k = j * WIDTH; k < (j + 1) * WIDTH; ++k)
                acc.value[k] = f(acc.value[k], a.at[k % WIDTH], a_low.at[k % WIDTH], da[k], db);
        }
        chain(acc, da);
    }

    // Operators of long code: it stands there once for WIDTH points, and the accumulator goes round.
    template <class F> static INLINE void go_round(Dual &acc, F f)
    {
#pragma unroll 1
        for (int j = 0; j < N_VECTORS; ++j) {
            T y[WIDTH], da[WIDTH];
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) y[k] = f(acc.value[k], da[k]);
            shift_in(acc.value, y);
#pragma unroll
            for (int t = 0; t < TANGENTS; ++t) {
#pragma unroll
                for (int k = 0; k < WIDTH; ++k) y[k] = acc.has(t) ? strong_product(acc.tangent[t][k], da[k]) : T(0);
                shift_in(acc.tangent[t], y);
            }
        }
    }

    static INLINE Other immediate_of(const Entry &now)
    {
        Other other;
        other.active = active_of(now);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            other.value.at[k] = now.high;
#pragma unroll
            for (int t = 0; t < TANGENTS; ++t) other.tangent[t].at[k] = now.tangent[t];
        }
        return other;
    }

    static INLINE Other in_slot(const Frame &frame, unsigned index, int j)
    {
        Vector *slot = slot_of(frame, index);
        Other other;
        other.active = frame.actives[index * LANES];
        other.value = *part_of(slot, 0, j);
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) other.tangent[t] = *part_of(slot, 1 + t, j);
        return other;
    }

    static INLINE Other operand_of(const Frame &frame, const Entry &now, int j)
    {
        const unsigned index = now.places & OPERAND;
        Other other;
        if (now.action & FROM_SLOT) {
            other = in_slot(frame, index, j);
        } else {
            other.active = 0;
            other.value = vector_of(frame.column(index), j);
#pragma unroll
            for (int t = 0; t < TANGENTS; ++t)
#pragma unroll
                for (int k = 0; k < WIDTH; ++k) other.tangent[t].at[k] = T(0);
        }
        return other;
    }

    // Take in WIDTH results with their derivatives by the accumulator (da) and by the other operand (db).
    static INLINE void take(Dual &acc, const Other &other, const T (&y)[WIDTH], const T (&da)[WIDTH], const T (&db)[WIDTH])
    {
        shift_in(acc.value, y);
#pragma unroll
        for (int t = 0; t < TANGENTS; ++t) {
            T tangent[WIDTH];
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) {
                tangent[k] = acc.has(t) ? strong_product(acc.tangent[t][k], da[k]) : T(0);
                if (other.active >> t & 1) tangent[k] = with_strong_product(tangent[k], db[k], other.tangent[t].at[k]);
            }
            shift_in(acc.tangent[t], tangent);
        }
    }

    template <class F> static INLINE void go_round(Dual &acc, int mode, const Frame &frame, const Entry &now, F f)
    {
        const bool first = mode & FIRST, is_immediate = mode & IMMEDIATE;
        unsigned active = 0;
#pragma unroll 1
        for (int j = 0; j < N_VECTORS; ++j) {
            const Other other = is_immediate ? immediate_of(now) : operand_of(frame, now, j);
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

    // The same for operators that take a pair: its columns or an immediate with the accumulator, or columns
    // with an immediate.
    template <class F> static INLINE void go_round_pair(Dual &acc, int mode, const Frame &frame, const Entry &now, F f)
    {
        const T *high = frame.column(now.places & OPERAND), *low = high + frame.pitch;
        if (mode == PAIR_AND_IMMEDIATE) from_immediate(acc, now);
        Other other = immediate_of(now);
        if (mode != PAIR_IMMEDIATE) other.active = 0;
#pragma unroll 1
        for (int j = 0; j < N_VECTORS; ++j) {
            Vector a_low;
            if (mode != PAIR_IMMEDIATE) {
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

#if RARE
    // acc = an operator that is called of acc and another operand, if it has one
    static INLINE void call(Dual &acc, int opcode, const Frame &frame, const Entry &now)
    {
        const int both = operator_of(opcode), code = both & ((1 << CODE_BITS) - 1), mode = both >> CODE_BITS;
        const bool first = mode & FIRST;
        unsigned active = 0;
#pragma unroll
        for (int j = 0; j < N_VECTORS; ++j) {
            Other other = immediate_of(now);
            if (mode & ALONE) other.active = 0;
            else if (!(mode & IMMEDIATE)) other = operand_of(frame, now, j);
            Vector mine;
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) mine.at[k] = acc.value[k];
            const unsigned wants = (acc.active != 0) << first | (other.active != 0) << !first;
            const Made made = called(code, first ? other.value : mine, first ? mine : other.value, wants, STRONG);
            if (!(made.has_slope >> first & 1)) acc.active = 0;
            if (!(made.has_slope >> !first & 1)) other.active = 0;
            active = other.active;
            if (first) take(acc, other, made.y.at, made.db.at, made.da.at);
            else take(acc, other, made.y.at, made.da.at, made.db.at);
        }
        acc.active |= active;
    }
#endif

#if RARE && defined(OF_THREE)
    // acc = a function of three operands of two in slots, one behind the other, and of acc or an immediate
    static INLINE void call_of_three(Dual &acc, int code, bool with_immediate, const Frame &frame, const Entry &now)
    {
        const unsigned index = now.places & OPERAND;
        unsigned active = 0;
        if (with_immediate) from_immediate(acc, now);
#pragma unroll
        for (int j = 0; j < N_VECTORS; ++j) {
            const Other a = in_slot(frame, index, j), b = in_slot(frame, index + 1, j);
            Vector c;
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) c.at[k] = acc.value[k];
            const unsigned wants = (a.active != 0) | (b.active != 0) << 1 | (acc.active != 0) << 2;
            const MadeOfThree made = called_of_three(code, a.value, b.value, c, wants);
            const unsigned from_a = made.has_slope & 1 ? a.active : 0, from_b = made.has_slope & 2 ? b.active : 0;
            if (!(made.has_slope & 4)) acc.active = 0;
            active = from_a | from_b;
            shift_in(acc.value, made.y.at);
#pragma unroll
            for (int t = 0; t < TANGENTS; ++t) {
                T tangent[WIDTH];
#pragma unroll
                for (int k = 0; k < WIDTH; ++k) {
                    tangent[k] = acc.has(t) ? ::strong_product(acc.tangent[t][k], made.by[2].at[k]) : T(0);
                    if (from_a >> t & 1) tangent[k] = ::with_strong_product(tangent[k], made.by[0].at[k], a.tangent[t].at[k]);
                    if (from_b >> t & 1) tangent[k] = ::with_strong_product(tangent[k], made.by[1].at[k], b.tangent[t].at[k]);
                }
                shift_in(acc.tangent[t], tangent);
            }
        }
        acc.active |= active;
    }
#endif

    // Run a program on N points of this thread.
    static INLINE void run(const Frame &frame, const Entry *entries, Dual &acc)
    {
        Entry next = *entries;
        acc.active = 0;
        while (true) {
            const Entry now = next;
            if (!(now.action & END)) next = *++entries;
            if (now.action & SPILL) spill(acc, frame, now.action >> SPILL_SHIFT & 0xffu);
            if (now.action & LOAD) load(acc, frame.column(now.places >> LOAD_SHIFT));
            const int opcode = now.action >> OPCODE_SHIFT;
            if (opcode < COMMON_OPCODES) {
                switch (opcode) {
            //{common cases}
                default: __builtin_unreachable();
                }
            } else {
                switch (opcode) {
            //{few cases}
#if RARE
            //{rare cases}
            //{calls of three}
                default: call(acc, opcode, frame, now);
#else
                default: __builtin_unreachable();
#endif
                }
            }
            if (now.action & END) return;
        }
    }
};

using Dual = Operators<false>::Dual;

// Run with STRONG.  It is called, and takes WIDTH points at a time: what is rare shall cost the rest no registers, and
// the compiler little time.
__device__ __noinline__ void run_in_parts(Frame frame, const Entry *entries, Dual *all)
{
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        Operators<true>::Dual acc;
        Operators<true>::run(frame.at(j * SEGMENT), entries, acc);
        all->active = acc.active;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            all->value[j * WIDTH + k] = acc.value[k];
#pragma unroll
            for (int t = 0; t < TANGENTS; ++t) all->tangent[t][j * WIDTH + k] = acc.tangent[t][k];
        }
    }
}

INLINE void run_strongly(const Frame &frame, const Entry *entries, Dual &acc)
{
    Dual all;  // in memory, unlike ``acc``
    run_in_parts(frame, entries, &all);
    acc = all;
}

// Run a program on this thread's points.
INLINE void run(const Frame &frame, const Entry *entries, Dual &acc)
{
    Operators<false>::run(frame, entries, acc);
    bool known = true;
#pragma unroll
    for (int t = 0; t < TANGENTS; ++t)
#pragma unroll
        for (int k = 0; k < POINTS; ++k) known = known && acc.tangent[t][k] == acc.tangent[t][k];
    if (!__all_sync(0xffffffffu, known)) run_strongly(frame, entries, acc);
}
