// A pool's functions made on the device, a combination per thread, and kept once each (regression/pool.py).
//
//     claim_slots       makes values, looks whether they are a function, and finds the place of their hash in the table;
//                       of combinations of one hash that is new the first gets it
//     mark_new          1 for those that have got one; the host adds up
//     place_functions   makes the values of those again and writes them where they belong
//     insert_again      functions into a larger table

//{PoolArguments}

//{arrays}

constexpr int NONE = 0x7fffffff;

// Values of a function, in a thread's registers or in memory; their bits.
struct Row {
    const double *at;
    INLINE Long length() const { return POOL_POINTS; }
    INLINE double get(Long k) const { return at[k]; }
};
struct RowBits {
    const double *at;
    INLINE Long length() const { return POOL_POINTS; }
    INLINE Bits get(Long k) const { return Bits(__double_as_longlong(at[k])); }
};

//{translated}

INLINE double applied(int operation, double a, double b, double c = 0.0)
{
    switch (operation) {
    //{cases}
    }
    return a;
}

INLINE bool make_unary(const PoolArguments &args, const Row inner, double *values)
{
    const double sign = args.negated ? -1.0 : 1.0;
    double again[POOL_POINTS];
    for (int k = 0; k < POOL_POINTS; ++k) values[k] = applied(args.operation, sign * inner.at[k], 0.0);
    const Row row{values};
    if (!is_function(row, row, row)) return false;
    for (int k = 0; k < POOL_POINTS; ++k) again[k] = applied(args.operation, sign * inner.at[k] * args.shifted, 0.0);
    return is_steady(row, Row{again});
}

INLINE bool make_of_three(const PoolArguments &args, const Row a, const Row b, const Row c, double *values)
{
    double again[POOL_POINTS];
    const double up = args.shifted, down = 2.0 - args.shifted;
    for (int k = 0; k < POOL_POINTS; ++k) values[k] = applied(args.operation, a.at[k], b.at[k], c.at[k]);
    const Row row{values};
    if (!is_function(row, row, row)) return false;
    for (int k = 0; k < POOL_POINTS; ++k)
        again[k] = applied(args.operation, a.at[k] * up, b.at[k] * down, c.at[k] * up);
    return is_steady(row, Row{again});
}

// The values of combination i of a launch and the numbers of its operands; whether they are a function.
INLINE bool make(const PoolArguments &args, Long i, double *values, Long &a, Long &b, Long &c)
{
    i += args.begin;
    c = 0;
    if (args.n_c) {
        c = args.c[i % args.n_c];
        i /= args.n_c;
    } else if (args.c) {
        c = args.c[i];
    }
    const Long in_a = args.n_b ? i / args.n_b : i, in_b = args.n_b ? i % args.n_b : i;
    if (args.once && in_a + (args.once == 2) > in_b) return false;
    a = args.a[in_a], b = args.b ? args.b[in_b] : 0;
    if (args.given) {
        for (int k = 0; k < POOL_POINTS; ++k) values[k] = args.given[i * POOL_POINTS + k];
        return true;
    }
    const Row left{args.values + a * POOL_POINTS}, right{args.values + b * POOL_POINTS};
    if (args.arity == 3) return make_of_three(args, left, right, Row{args.values + c * POOL_POINTS}, values);
    if (args.arity == 1) return (args.is_power || !args.bounded[a]) && make_unary(args, left, values);
    for (int k = 0; k < POOL_POINTS; ++k) values[k] = applied(args.operation, left.at[k], right.at[k]);
    return is_function(Row{values}, left, right);
}

// The slot of some values' hash, which belongs to the function of least number that asks for it.
INLINE int claim(const PoolArguments &args, const double *values, int number)
{
    const Bits hash = Bits(hash_of(RowBits{values})), key = hash ? hash : Bits(1);
    Bits slot = key & args.mask;
    while (true) {
        Bits there = *const_cast<volatile Bits *>(args.keys + slot);
        if (there == 0) there = atomicCAS(args.keys + slot, Bits(0), key);
        if (there == 0 || there == key) break;
        slot = (slot + 1) & args.mask;
    }
    if (number < *const_cast<volatile int *>(args.owners + slot)) atomicMin(args.owners + slot, number);
    return int(slot);
}

INLINE Long own_number() { return Long(blockIdx.x) * blockDim.x + threadIdx.x; }

extern "C" __global__ void claim_slots(const PoolArguments args)
{
    const Long i = own_number();
    if (i >= args.n) return;
    double values[POOL_POINTS];
    Long a, b, c;
    args.slots[i] = make(args, i, values, a, b, c) ? claim(args, values, int(args.n_functions + i)) : -1;
}

extern "C" __global__ void mark_new(const PoolArguments args)
{
    const Long i = own_number();
    if (i >= args.n) return;
    const int slot = args.slots[i];
    args.rank[i] = slot >= 0 && args.owners[slot] == args.n_functions + i;
}

extern "C" __global__ void place_functions(const PoolArguments args)
{
    const Long i = own_number();
    if (i >= args.n || args.rank[i] == (i ? args.rank[i - 1] : 0)) return;
    const Long number = Long(args.n_functions) + args.rank[i] - 1;
    const bool has_room = number < args.most;
    args.owners[args.slots[i]] = has_room ? int(number) : NONE;
    if (!has_room) return;
    double values[POOL_POINTS];
    Long a, b, c;
    make(args, i, values, a, b, c);
    for (int k = 0; k < POOL_POINTS; ++k) args.values[number * POOL_POINTS + k] = values[k];
    args.made_by[number] = short(args.made_of), args.left[number] = int(a), args.right[number] = int(b);
    const bool is_binary = args.arity >= 2, is_ternary = args.arity == 3;
    if (is_ternary) args.third[number] = int(c);
    if (args.arity == 0) {
        args.sizes[number] = 1, args.bounded[number] = false;
    } else {
        args.sizes[number] = 1 + args.sizes[a] + (args.negated ? 1 : 0) + (is_binary ? args.sizes[b] : 0);
        args.bounded[number] = args.bounded[a] || (is_binary ? args.bounded[b] : !args.is_power);
        if (is_ternary) args.sizes[number] += args.sizes[c], args.bounded[number] = args.bounded[number] || args.bounded[c];
    }
}

extern "C" __global__ void insert_again(const PoolArguments args)
{
    const Long i = own_number();
    if (i < args.n) claim(args, args.values + i * POOL_POINTS, int(i));
}
