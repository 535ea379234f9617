// The kernels before and after the interpreter, and the thesis's way, a baseline.

#if SUPPORT

// ── before and after ─────────────────────────────────────────────────────────────────

// One operator on single numbers: columns, prologues and the per-expression kernel.
__device__ __noinline__ T scalar(int code, T a, T a_low, T b, T &y_low)
{
    y_low = T(0);
    switch (code) {
    //{scalar cases}
    }
    return T(0);
}

// Column ``blockIdx.y`` of the programs from the user's data, a point a thread.
extern "C" __global__ void make_columns(const Job job)
{
    const Long point = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (point >= job.pitch) return;
    const Long source = min(point, job.n_points - 1);
    for (int c = blockIdx.y; c < job.n_columns; c += gridDim.y) {
        const T x = job.data[source * job.stride_point + job.column_var[c] * job.stride_variable];
        T low;
        const T y = scalar(job.column_code[c], x, T(0), T(0), low);
        job.columns[c * job.pitch + point] = job.column_low[c] ? low : y;
    }
}

// The last result of a prologue, which is mostly what is wanted.
struct Last {
    int index;
    Number number;
};

INLINE Number find(const Job &job, int source, Long row, const T *results, const Last &last)
{
    const int index = source >> 2;
    switch (source & 3) {
    case PARAMETER: return Number{job.params[row * job.max_params + index], T(0)};
    case CONSTANT: return Number{job.constants[index], T(0)};
    case RESULT: return index == last.index ? last.number : Number{results[index], results[index + 1]};
    }
    return Number{T(0), T(0)};
}

// The numbers of one expression with one parameter set, a thread: run its prologue, then fill in its words' numbers.
// What takes time is how often a load waits for one before it, so the first word's source is read early.
extern "C" __global__ void make_numbers(const Job job)
{
    let_next_begin();
    wait_for_previous();  // which may have made the parameters, and reads the numbers
    const unsigned row = blockIdx.x * blockDim.x + threadIdx.x, n_exprs = job.n_exprs;
    if (row >= job.n_sets * n_exprs) return;
    const unsigned set = row / n_exprs, e = row % n_exprs;
    const int first = job.first_step[e], end = job.first_step[e + 1], word = job.first_word[e];
    const int stop = e + 1 < n_exprs ? job.first_word[e + 1] : job.n_words;
    int source = job.sources[word];
    T *results = job.results + Long(set) * job.n_results;
    Last last{-1, Number{T(0), T(0)}};
    for (int s = first; s < end; ++s) {
        const Step step = job.steps[s];
        const Number a = find(job, step.a, row, results, last), b = find(job, step.b, row, results, last);
        T low;
        const T y = scalar(step.code, a.high, a.low, b.high, low);
        last = Last{step.result >> 1, Number{y, low}};
        results[last.index] = y;
        if (step.result & 1) results[last.index + 1] = low;
    }
    Number *numbers = job.numbers + Long(set) * job.n_words;
    for (int w = word; w < stop; ++w) {
        const int now = source;
        if (w + 1 < stop) source = job.sources[w + 1];
        if (now) numbers[w] = find(job, now, row, results, last);
    }
}

// Sum of an item's chunks in float64 by ADDERS threads; the order depends on nothing but how many chunks there are.
extern "C" __global__ void add_chunks(const Job job)
{
    __shared__ double sums[LANES > 1 ? 256 : 1];
    const Long row = (Long(blockIdx.x) * blockDim.x + threadIdx.x) / ADDERS;
    const int adder = threadIdx.x % ADDERS, here = LANES > 1 ? threadIdx.x : 0;
    wait_for_previous();
    double sum = 0.0;
    if (row < job.n_items) {
#pragma unroll 8
        for (int c = adder; c < job.n_chunks; c += ADDERS) sum += double(job.partials[row * job.n_chunks + c]);
    }
    sums[here] = sum;
    for (int step = ADDERS / 2; step > 0; step /= 2) {
        __syncthreads();
        if (adder < step) sums[here] += sums[here + step];
    }
    if (adder == 0 && row < job.n_items) job.sums[row] = job.add_to_sums ? job.sums[row] + sums[here] : sums[here];
}

// ── the thesis's way: one launch per expression over its postfix form ────────────────

// One expression at every point, a point a thread: tokens up to the stop, a stack in local memory.
extern "C" __global__ void per_expression(const Job job)
{
    const Long point = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (point >= job.n_points) return;
    T stack[STACK];
    int top = -1;
    for (Long t = Long(job.expression) * job.max_tokens;; ++t) {
        const int kind = job.token_kinds[t], value = job.token_values[t];
        if (kind == T_STOP) break;
        if (kind == T_CONSTANT) stack[++top] = job.token_numbers[t];
        else if (kind == T_VARIABLE) stack[++top] = job.data[point * job.stride_point + value * job.stride_variable];
        else if (kind == T_PARAMETER) stack[++top] = job.params[Long(job.expression) * job.max_params + value];
        else {
            const bool binary = value >> 8;
            T low, b = T(0);
            if (binary) b = stack[top--];
            stack[top] = scalar(value & 0xff, stack[top], T(0), b, low);
        }
    }
    job.out[Long(job.expression) * job.n_points + point] = top < 0 ? T(nan("")) : stack[top];
}

#endif
