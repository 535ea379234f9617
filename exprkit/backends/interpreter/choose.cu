// What chooses among fits: a kernel that holds no operators, so that it is compiled at once.

//{FitArguments}

// Of every expression's fits the one with the least loss (of equal ones the first) goes into set 0, with the
// evaluations of all; a thread per expression.
extern "C" __global__ void choose(const FitArguments args)
{
    const Long e = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (e >= args.n_exprs) return;
    Long best = e;
    for (Long row = e + args.n_exprs; row < Long(args.n_sets) * args.n_exprs; row += args.n_exprs) {
        args.evaluations[e] += args.evaluations[row];
        if (args.loss[row] < args.loss[best] || (args.loss[best] != args.loss[best] && args.loss[row] == args.loss[row])) best = row;
    }
    if (best == e) return;
    for (int i = 0; i < args.max_params; ++i) args.params[e * args.max_params + i] = args.params[best * args.max_params + i];
    args.loss[e] = args.loss[best];
    args.iterations[e] = args.iterations[best];
    args.status[e] = args.status[best];
}
