// The join on the device (regression/join.py): what lookups ask for, a function per thread, and the lookups.

//{JoinArguments}

//{arrays}

// Values of a function; of several; numbers that rise; what is looked up in.
struct Row {
    const double *at;
    INLINE Long length() const { return POOL_POINTS; }
    INLINE double get(Long k) const { return at[k]; }
};
struct Rows {
    const double *at;
    INLINE Row get(Long i) const { return Row{at + i * POOL_POINTS}; }
};
template <class E> struct Counted {
    const E *at;
    Long n;
    INLINE Long length() const { return n; }
    INLINE typename As<E>::Number get(Long i) const { return at[i]; }
};
//{constants}

struct Lookup { Counted<int> order; Counted<double> s; Rows values; };

//{translated}

INLINE double applied(int operation, double a)
{
    switch (operation) {
    //{cases}
    }
    return a;
}

INLINE Long own_number() { return Long(blockIdx.x) * blockDim.x + threadIdx.x; }

INLINE Lookup lookup_of(const JoinArguments &args)
{
    return Lookup{{args.order, args.n_sorted}, {args.sorted, args.n_sorted}, {args.values}};
}

extern "C" __global__ void find_signatures(const JoinArguments args)
{
    const Long i = own_number();
    if (i >= args.n) return;
    double found[2];
    find_signature(Rows{args.values}.get(i), Plain<double>{found});
    args.s[i] = found[0], args.error[i] = found[1];
}

extern "C" __global__ void mark_repeated(const JoinArguments args)
{
    const Long k = own_number();
    if (k < args.n) args.repeated[k] = is_repeated(lookup_of(args), k);
}

extern "C" __global__ void choose_smallest(const JoinArguments args)
{
    const Long k = own_number();
    if (k >= args.n) return;
    const Plain<const unsigned char> sizes{args.sizes};
    const Plain<const bool> repeated{args.repeated};
    args.smallest[k] = args.repeated[k] ? -1 : int(smallest_of(lookup_of(args).order, sizes, repeated, k));
}

// What ``a + b h`` has to be at a point, nan where it can not be (Form.linear_part).
INLINE double linear_part(const JoinArguments &args, double v, double f)
{
    const double nothing = nan("");
    const bool is_sum = args.way >= PLUS, is_hidden = is_sum && !(fabs(f) <= args.hidden * fabs(v));
    const double left = args.way == PLUS ? v - f : args.way == LESS ? f - v : v + f;
    const double q = is_hidden ? nothing : is_sum ? left : args.way == TIMES ? v / f : f / v;
    if (args.inner < 0) return q;
    const double z = applied(args.undoing, q), back = applied(args.inner, z);
    return fabs(back - q) <= args.same * fabs(q) ? z : nothing;
}

extern "C" __global__ void find_partners(const JoinArguments args)
{
    const Long i = own_number();
    if (i >= args.n) return;
    const double *const f = args.values + (args.first + i) * POOL_POINTS;
    double q[POOL_POINTS], found[2];
    for (int k = 0; k < POOL_POINTS; ++k) q[k] = linear_part(args, args.v[k], f[k]);
    args.partner[i] = int(partner_of(Row{q}, lookup_of(args), Plain<double>{found}));
}
