// Values with derivatives: what a program does to an accumulator that has TANGENTS derivatives beside every value.
//
// The host joins it behind job.cu and arithmetic.cu; equations.cu and fit.cu follow.  Programs are those of the
// interpreter, words with an accumulator.  A value that does not depend on a parameter has no tangent for it, and
// what an operator's derivative is there (perhaps inf) does not matter; ``active`` has a bit for each tangent that counts.
//
// The host defines, besides the macros of job.cu:
//
//     TANGENTS      1 to 4                                    RARE      1 where uncommon operators are used
//     ENTRY_BYTES   the size of an entry                      STRONG    1: 0 times anything is 0 in a derivative

constexpr double MOST = 1.7976931348623157e308;

// A word of a program, with its number and the number's derivatives.
struct __align__(16) Entry { unsigned action, places; T high, low; T rate[TANGENTS + TANGENTS % 2]; };
static_assert(sizeof(Entry) == ENTRY_BYTES, "the host and the kernel disagree about an entry");

// ── approximations ───────────────────────────────────────────────────────────────────

// A derivative divides by what its value divides by: as a product with the reciprocal the two share the latter.
INLINE double shared_quotient(double a, double b) { return a / b; }
INLINE float shared_quotient(float a, float b) { return APPROXIMATE_DIVISION ? a * approximate_reciprocal(b) : a / b; }
#define quotient shared_quotient

// In a derivative 0 times anything is 0, also beside inf and nan: what does not change with a parameter has no slope.
// Where STRONG is 0 that is left out, and who finds a nan does all again with it: it is rare and costs as much as the rest.
INLINE bool is_zero(T a) { return STRONG && a == T(0); }
INLINE T strong_product(T a, T b) { return is_zero(a) || is_zero(b) ? T(0) : a * b; }
INLINE T strong_quotient(T a, T b) { return is_zero(a) ? T(0) : a / b; }
INLINE T strong_fast_quotient(T a, T b) { return is_zero(a) ? T(0) : quotient(a, b); }
INLINE T with_strong_product(T sum, T a, T b) { return is_zero(a) || is_zero(b) ? sum : fma(a, b, sum); }

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
        for (int k = 0; k < POINTS; ++k) acc.rate[t][k] = strong_product(acc.rate[t][k], da[k]);
    }
}

// Only these tangents are left: of an operator that has no slope by what the others came from.
INLINE void only(Dual &acc, unsigned active)
{
    acc.active &= active;
#pragma unroll
    for (int t = 0; t < TANGENTS; ++t)
#pragma unroll
        for (int k = 0; k < POINTS; ++k) acc.rate[t][k] = acc.has(t) ? acc.rate[t][k] : T(0);
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
        for (int k = 0; k < POINTS; ++k) acc.rate[t][k] = with_strong_product(acc.rate[t][k], db[k], now.rate[t]);
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
                if (acc.has(t)) mine = strong_product(mine, da[k]);
                if (active >> t & 1) mine = with_strong_product(mine, db[k], rate.at[k]);
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
            for (int k = 0; k < WIDTH; ++k) y[k] = acc.has(t) ? strong_product(acc.rate[t][k], da[k]) : T(0);
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
            rate[k] = acc.has(t) ? strong_product(acc.rate[t][k], da[k]) : T(0);
            if (other.active >> t & 1) rate[k] = with_strong_product(rate[k], db[k], other.rate[t].at[k]);
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
