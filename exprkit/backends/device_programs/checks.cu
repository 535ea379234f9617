// A population's tokens copied and checked on the device, an expression per thread, by the host's own function
// (checks.py).  The copy is what is checked: what becomes of the arrays meanwhile does not matter.

//{CheckArguments}
//{checked}

//{arrays}

//{tokens}

struct Unchecked {
    Plain<const unsigned char> kinds;
    Plain<const Bits> values;
    Plain<const int> operands;
    Plain<const Bits> limits;
    Long max_tokens;
};

//{translated}

// Make a number that all threads share the largest of theirs.
INLINE void raise_to(Long *place, Long number)
{
    if (number > *const_cast<volatile Long *>(place)) atomicMax(place, number);
}

// Copy and check an expression; gives what it adds to the summary.
INLINE Several<CHECKED> check_one(const CheckArguments &args, const int i)
{
    Several<CHECKED> found = {};
    if (i == 0) args.own_offsets[0] = 0;
    if (i == 0 && (args.offsets[0] != 0 || args.offsets[args.n_exprs] != args.n_tokens)) found.at[BAD] = 1;
    if (i >= args.n_exprs) return found;
    const Long begin = args.offsets[i], end = args.offsets[i + 1];
    if (begin < 0 || begin > end || end > args.n_tokens) {
        found.at[BAD] = 1;
        return found;
    }
    args.own_offsets[i + 1] = end;
    Long n_vars = 0, n_params = 0, wide = 0;
    for (Long t = begin; t < end; ++t) {
        const unsigned char kind = args.own_kinds[t] = args.kinds[t];
        const Long value = args.own_values[t] = args.values[t];
        if (kind == T_VARIABLE) n_vars = max(n_vars, value + 1);
        if (kind == T_PARAMETER) n_params = max(n_params, value + 1);
        if (kind == T_CONSTANT) wide |= Long(double(float(__longlong_as_double(value))) != __longlong_as_double(value));
    }
    const Unchecked pop{{args.own_kinds}, {args.own_values}, {args.operands}, {args.limits}, args.max_tokens};
    if (problem_of(pop, begin, end, end > begin).at[0] != 0) found.at[BAD] = 1;
    found.at[VARIABLES] = n_vars;
    found.at[PARAMETERS] = n_params;
    found.at[LONGEST] = end - begin;
    found.at[UNREADABLE] = begin == end;
    found.at[WIDE_CONSTANTS] = wide;
    args.n_params[i] = int(n_params);
    return found;
}

extern "C" __global__ void check_tokens(const CheckArguments args)
{
    __shared__ bool is_last;
    const Several<CHECKED> found = check_one(args, blockIdx.x * blockDim.x + threadIdx.x);
    for (int k = 0; k < CHECKED; ++k) {  // lane k takes the warp's largest number k
        Long most = found.at[k];
        for (int step = LANES / 2; step > 0; step /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, step));
        if (threadIdx.x % LANES == k % LANES) raise_to(args.summary + k, most);
    }
    __threadfence();
    __syncthreads();
    Bits *n_done = reinterpret_cast<Bits *>(args.summary + CHECKED);
    if (threadIdx.x == 0) is_last = atomicAdd(n_done, Bits(1)) + 1 == gridDim.x;
    __syncthreads();
    if (!is_last) return;
    for (int k = threadIdx.x; k < CHECKED; k += blockDim.x) {  // all other blocks are done
        args.told[k] = const_cast<volatile Long *>(args.summary)[k];
        args.summary[k] = 0;
    }
    if (threadIdx.x == 0) *n_done = 0;
    __syncthreads();
    if (threadIdx.x == 0) tell(args.told + CHECKED, args.ticket);
}
