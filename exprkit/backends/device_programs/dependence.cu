// Which parameters an expression is linear in and whether it can be fitted, an expression per thread: the walk of the
// host (programs/linearity.py), translated.

//{DependenceArguments}
//{verdicts}

//{arrays}

struct Walked { Plain<const unsigned char> kinds; Plain<const Bits> values; Plain<const unsigned char> arity, uses; };
struct Sets { Own<Bits> stack, meets; };

//{translated}

extern "C" __global__ void find_dependence(const DependenceArguments args)
{
    const Walked tokens{{args.kinds}, {args.values}, {args.arity}, {args.uses}};
    Memory memory = memory_of(args.scratch, args.threads);
    const Sets sets{memory.take<Bits>(args.longest), memory.take<Bits>(64)};
    for (int j = 0; j < 64; ++j) sets.meets.set(j, Bits(0));
    for (int chunk = blockIdx.x; chunk < args.n_chunks; chunk += gridDim.x) {
        const int e = chunk * blockDim.x + threadIdx.x;
        if (e >= args.n_exprs) break;
        const Long begin = args.offsets[e], end = args.offsets[e + 1];
        const Several<2> found = walk(tokens, sets, begin, end);
        args.linear[e] = Bits(found.at[0]);
        args.verdicts[e] = begin == end ? INVALID : args.n_params[e] == 0 ? NO_PARAMETERS : found.at[1] ? RUNNING : NO_DERIVATIVE;
    }
}
