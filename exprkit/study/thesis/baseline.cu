// The thesis's way: one launch per expression over its postfix form, a point per thread.  Behind the interpreter's text.

//{tokens}
//{Baseline}

constexpr int T_STOP = T_OPERATOR + 1;  // behind an expression's last token

// One expression at every point: tokens up to the stop, a stack in local memory.
extern "C" __global__ void __launch_bounds__(BLOCK) per_expression(const Baseline args)
{
    const Long point = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (point >= args.n_points) return;
    T stack[STACK];
    int top = -1;
    for (Long t = Long(args.expression) * args.max_tokens;; ++t) {
        const int kind = args.token_kinds[t], value = args.token_values[t];
        if (kind == T_STOP) break;
        if (kind == T_CONSTANT) stack[++top] = args.token_numbers[t];
        else if (kind == T_VARIABLE) stack[++top] = args.data[point * args.stride_point + value * args.stride_variable];
        else if (kind == T_PARAMETER) stack[++top] = args.params[Long(args.expression) * args.max_params + value];
        else {
            const int more = value >> 8;  // operands beside the first
            T low, a_low = T(0), b = T(0);
            if (more > 0) b = stack[top--];
            if (more > 1) a_low = stack[top--];
            stack[top] = scalar(value & 0xff, stack[top], a_low, b, low);
        }
    }
    args.out[Long(args.expression) * args.n_points + point] = top < 0 ? T(nan("")) : stack[top];
}
