// A population's tokens copied and checked on the device, an expression per thread, by the host's own function
// (checks.py).  The copy is what is checked: what becomes of the arrays meanwhile does not matter.

//{CheckArguments}
//{checked}

//{arrays}

struct Tokens { Plain<const unsigned char> kinds; Plain<const Bits> values; Plain<const unsigned char> arity; };

//{translated}

// Make a number that all threads share the largest of theirs.
INLINE void raise_to(Long *place, Long number)
{
    if (number > *const_cast<volatile Long *>(place)) atomicMax(place, number);
}

extern "C" __global__ void check_tokens(const CheckArguments args)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) args.own_offsets[0] = 0;
    if (i == 0 && (args.offsets[0] != 0 || args.offsets[args.n_exprs] != args.n_tokens)) raise_to(args.summary + BAD, 1);
    if (i >= args.n_exprs) return;
    const Long begin = args.offsets[i], end = args.offsets[i + 1];
    if (begin < 0 || begin > end || end > args.n_tokens) {
        raise_to(args.summary + BAD, 1);
        return;
    }
    args.own_offsets[i + 1] = end;
    for (Long t = begin; t < end; ++t) args.own_kinds[t] = args.kinds[t], args.own_values[t] = args.values[t];
    const Tokens tokens{{args.own_kinds}, {args.own_values}, {args.arity}};
    const Several<3> limits{{args.most_tokens, args.most_variables, args.most_parameters}};
    const Several<4> result = problem_of(tokens, begin, end, end > begin, limits);
    if (result.at[0] != 0) raise_to(args.summary + BAD, 1);
    raise_to(args.summary + VARIABLES, result.at[2]);
    raise_to(args.summary + PARAMETERS, result.at[3]);
    raise_to(args.summary + LONGEST, end - begin);
    if (begin == end) raise_to(args.summary + UNREADABLE, 1);
    args.n_params[i] = int(result.at[3]);
}
