// What chooses among fits: a kernel that holds no operators, so that it is compiled at once.

//{FitArguments}
//{ties}

INLINE double size_of(const FitArguments &args, Long row)
{
    double size = SETTLED >> args.status[row] & 1u ? 0.0 : UNSETTLED;
    for (int i = 0; i < args.max_params; ++i) {
        const double p = args.params[row * args.max_params + i];
        if (p == p) size += log1p(fabs(p)) + (p < 0 ? MINUS : 0.0);
    }
    return size;
}

// Of every expression's fits the best (objective.best_starts) goes into set 0, with the evaluations of all; a thread
// per expression.
extern "C" __global__ void choose(const FitArguments args)
{
    const Long e = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (e >= args.n_exprs) return;
    Long best = e;
    for (Long row = e + args.n_exprs; row < Long(args.n_sets) * args.n_exprs; row += args.n_exprs) {
        args.evaluations[e] += args.evaluations[row];
        if (args.loss[row] < args.loss[best] || (args.loss[best] != args.loss[best] && args.loss[row] == args.loss[row])) best = row;
    }
    const double most = args.loss[best] + SAME * fabs(args.loss[best]) + args.nothing;
    double least = size_of(args, best);
    for (Long row = e; row < Long(args.n_sets) * args.n_exprs; row += args.n_exprs) {
        if (!(args.loss[row] <= most)) continue;
        const double size = size_of(args, row);
        if (size < least - SMALLER) best = row, least = size;
    }
    if (best == e) return;
    for (int i = 0; i < args.max_params; ++i) args.params[e * args.max_params + i] = args.params[best * args.max_params + i];
    args.loss[e] = args.loss[best];
    args.iterations[e] = args.iterations[best];
    args.status[e] = args.status[best];
}
