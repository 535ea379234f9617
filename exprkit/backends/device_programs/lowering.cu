// From tokens to bytecode on the device: the lowering and the accumulator programs of the host, an expression per thread.
//
// What is done with an expression stands in lower.py, rewrite.py and bytecode.py, whose functions are translated
// (translate.py); here is what they work with and where it goes.  Three launches:
//
//     count_words     lower every expression, keep nothing but how many words it has and which columns it uses
//     number_words    where each chunk of expressions begins, and the numbers of the columns (one block)
//     emit_words      lower every expression again, into its place
//
// A chunk is as many expressions as a block has threads.

//{counts}
//{LoweringArguments}

//{arrays}

// The constants of the tokens, rounded to the type of the data.
struct Rounded {
    const Bits *values;
    INLINE double get(Long i) const { return double(T(__longlong_as_double(Long(values[i])))); }
};

// ── bags: those arrays of the host's that values need ──

struct Tokens { Plain<const unsigned char> kinds; Plain<const Bits> values; };
struct Rules {
    Plain<const unsigned char> arity, width;
    Plain<const unsigned char, 256> fused;
    Plain<const unsigned char> positive_a, whole_b, first, rest, constant_code;
    Plain<const Long> constant_start;
    Plain<const double> constant_value;
};
struct Rows {
    Plain<const int, 6> opcode;
    Plain<const unsigned char> arity, width;
    Plain<const Long> pair, commutative, cost;
};
struct Graph {
    Own<int> a, b, stack;
    Own<unsigned char> group, code;
    Rounded numbers;
    Plain<const Bits> values;
    Plain<const bool> positive;
    Plain<Long> counts;
};
struct Scratch { Own<int> uses, place, need, base; };
struct Room { Own<double> constants; Own<int> a, b, dst; Own<unsigned char> code; };
struct Lowered { Own<int> a, b, dst; Own<unsigned char> code; Plain<Long> offsets, n_prologue, first_const, n_params; };

// A column: in the first pass it is noted, and has a number in the second.
struct Noting {
    unsigned char *wanted;
    Plain<Long> totals;
    INLINE Long column(Long key) const
    {
        if (!wanted[key]) wanted[key] = 1;
        return 0;
    }
};
struct Numbered {
    const int *column_of;
    Plain<Long> totals;
    INLINE Long column(Long key) const { return column_of[key]; }
};
template <class Code, class Var, class R, class Output> INLINE Long _column(Code code, Var var, R, Output output)
{
    return output.column(var * 256 + code);
}

// Bytecode: of a thread's own in the first pass, everybody's in the second.
struct Draft { Own<unsigned, 2> instructions; Own<int> sources; Own<int, 4> steps; };
struct Final { Plain<unsigned, 2> instructions; Plain<int> sources; Plain<int, 4> steps; };

//{translated}

// ── an expression ──

// Make the bytecode of an expression from these places on; gives how much of everything it has, the most slots, and
// whether it has an operator that needs many registers.
template <class Output, class Result>
INLINE Several<COUNTS + 2> lower_one(
    const LoweringArguments &args, int e, Memory memory, Several<COUNTS> places, Output output, Result result, T *constants)
{
    const Long begin = args.offsets[e], end = args.offsets[e + 1], n_params = args.n_params[e];
    const Long most = args.most_nodes;
    Long instruction = places.at[INSTRUCTIONS], totals[2] = {0, 0}, counts[1], forward[1];
    output.totals.at = totals;
    const Rows rows{{args.opcode}, {args.arity}, {args.width}, {args.takes_pair}, {args.commutative}, {args.operator_cost}};
    if (begin == end) {  // an expression that could not be read: nan, behind all constants
        result.instructions.set(instruction, ACTION, rows.opcode.get(COPY, IMMEDIATE) << OPCODE_SHIFT | END);
        result.instructions.set(instruction, PLACES, 0);
        result.sources.set(instruction, args.summary[CONSTANTS] << SOURCE_SHIFT | CONSTANT);
        return Several<COUNTS + 2>{{1, 0, 0, 0, 0, 0, 0}};
    }
    const Rules rules{{args.arity}, {args.width}, {args.fused}, {args.positive_a}, {args.whole_b}, {args.first},
                      {args.rest}, {args.constant_code}, {args.constant_start}, {args.constant_value}};
    const Room room{memory.take<double>(most), memory.take<int>(most), memory.take<int>(most), memory.take<int>(most),
                    memory.take<unsigned char>(most)};
    const Graph graph{memory.take<int>(most), memory.take<int>(most), memory.take<int>(most),
                      memory.take<unsigned char>(most), memory.take<unsigned char>(most),
                      Rounded{args.values}, {args.values}, {args.positive}, {counts}};
    const Scratch scratch{memory.take<int>(most), memory.take<int>(most), memory.take<int>(most), memory.take<int>(most)};
    const Long root = read_tree(graph, rules, scratch, Tokens{{args.kinds}, {args.values}}, begin, end);
    forward[0] = root;
    const Several<2> marked = mark(graph, scratch, Plain<Long>{forward}, Long(1));
    const Long n_const = marked.at[0], n_point = larger(marked.at[1], 1), first_const = places.at[CONSTANTS];
    Long n_prologue = place(graph, rules, scratch, output, room, Several<4>{{0, 0, n_params, n_params + n_const}});
    const Long stop = n_prologue + n_point;
    emit_tree(graph, scratch, output, room, stop, root);

    Long offsets[2] = {0, stop}, ends[2] = {first_const, first_const + n_const}, parameters[1] = {n_params};
    const Lowered lowered{room.a, room.b, room.dst, room.code, {offsets}, {&n_prologue}, {ends}, {parameters}};
    const Several<2> after = write_prologue(Long(0), places.at[STEPS], places.at[RESULTS], lowered, rows.width, result.steps);
    Long cost = 0, traits = 0;
    for (Long k = n_prologue; k < stop; ++k, ++instruction) {
        result.sources.set(instruction, 0);
        write_instruction(k, k == n_prologue, Long(0), instruction, places.at[RESULTS], lowered, rows, result);
        const Long action = result.instructions.get(instruction, ACTION);
        traits |= args.traits[room.code.get(k)];
        cost += rows.cost.get(room.code.get(k)) + ((action & (LOAD | SPILL | FROM_SLOT)) != 0);
    }
    result.instructions.set(instruction - 1, ACTION, result.instructions.get(instruction - 1, ACTION) | END);
    if (constants)
        for (Long c = 0; c < n_const; ++c) constants[first_const + c] = T(room.constants.get(c));
    return Several<COUNTS + 2>{{n_point, n_prologue, after.at[1] - places.at[RESULTS], n_const, cost, totals[0], traits}};
}

// Sum of the warp's numbers up to this lane's.
INLINE Long sum_of_lanes(Long sum)
{
    for (int step = 1; step < LANES; step *= 2) {
        const Long more = __shfl_up_sync(0xffffffffu, sum, step);
        if (int(threadIdx.x % LANES) >= step) sum += more;
    }
    return sum;
}

// Sum of the block's numbers before this thread's; ``sums`` has that of all first warps then, at last of all.
INLINE Long sum_before(Long number, Long *sums)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, n_warps = blockDim.x / LANES;
    const Long sum = sum_of_lanes(number);
    if (lane == LANES - 1) sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        const Long up_to_here = sum_of_lanes(lane < n_warps ? sums[lane] : 0);
        if (lane < n_warps) sums[lane] = up_to_here;
    }
    __syncthreads();
    return sum - number + (warp > 0 ? sums[warp - 1] : 0);
}

INLINE Long sum_of_all(const Long *sums) { return sums[blockDim.x / LANES - 1]; }

extern "C" __global__ void count_words(const LoweringArguments args)
{
    __shared__ Long sums[32];  // a warp each
    const Long most = args.most_nodes;
    int n_slots = 0;
    Long traits = 0;
    for (int chunk = blockIdx.x; chunk < args.n_chunks; chunk += gridDim.x) {
        const int e = chunk * blockDim.x + threadIdx.x;
        Several<COUNTS + 2> counts = {};
        if (e < args.n_exprs) {
            Memory memory = memory_of(args.scratch, args.threads);
            const Draft draft{memory.take<unsigned, 2>(most), memory.take<int>(most), memory.take<int, 4>(most)};
            counts = lower_one(args, e, memory, Several<COUNTS>{}, Noting{args.wanted, {nullptr}}, draft, nullptr);
            n_slots = max(n_slots, int(counts.at[COUNTS]));
            traits |= counts.at[COUNTS + 1];
        }
        for (int k = 0; k < COUNTS; ++k) {
            const Long before = sum_before(counts.at[k], sums);
            if (e < args.n_exprs) args.counts[Long(k) * args.n_exprs + e] = int(before);
            if (threadIdx.x == 0) args.totals[Long(k) * args.n_chunks + chunk] = sum_of_all(sums);
            __syncthreads();
        }
    }
    volatile const Long &most_slots = args.summary[N_SLOTS_SO_FAR];
    if (n_slots > most_slots) atomicMax(args.summary + N_SLOTS_SO_FAR, Long(n_slots));
    volatile const Long &known = args.summary[TRAITS_SO_FAR];
    if (traits & ~known) atomicOr(reinterpret_cast<Bits *>(args.summary + TRAITS_SO_FAR), Bits(traits));
}

extern "C" __global__ void __launch_bounds__(1024) number_words(const LoweringArguments args)
{
    __shared__ Long sums[32];  // a warp each
    const int own = (args.n_chunks + blockDim.x - 1) / blockDim.x, n_keys = 256 * args.n_vars;
    for (int k = 0; k < COUNTS; ++k) {
        Long *totals = args.totals + Long(k) * args.n_chunks, sum = 0;
        const int first = min(int(threadIdx.x) * own, args.n_chunks), stop = min(first + own, args.n_chunks);
        for (int c = first; c < stop; ++c) sum += totals[c];
        Long before = sum_before(sum, sums);
        if (threadIdx.x == 0) args.summary[k] = sum_of_all(sums);
        for (int c = first; c < stop; ++c) {
            const Long here = totals[c];
            totals[c] = before;
            before += here;
        }
        __syncthreads();
    }
    const int keys = (n_keys + blockDim.x - 1) / blockDim.x;
    const int first = min(int(threadIdx.x) * keys, n_keys), stop = min(first + keys, n_keys);
    Long sum = 0;
    for (int key = first; key < stop; ++key) sum += args.wanted[key] ? args.width[key % 256] : 0;
    int column = int(sum_before(sum, sums));
    if (threadIdx.x == 0) {
        args.summary[N_COLUMNS] = sum_of_all(sums);
        args.summary[N_SLOTS] = args.summary[N_SLOTS_SO_FAR];
        args.summary[TRAITS] = args.summary[TRAITS_SO_FAR];
        args.summary[N_SLOTS_SO_FAR] = args.summary[TRAITS_SO_FAR] = 0;
        for (int k = 0; k < SUMMARY; ++k) args.told[k] = args.summary[k];
    }
    for (int key = first; key < stop; ++key) {
        if (!args.wanted[key]) continue;
        args.wanted[key] = 0;
        args.column_of[key] = column;
        for (int part = 0; part < args.width[key % 256]; ++part, ++column) {
            if (column >= args.most_columns) continue;
            args.column_code[column] = key % 256, args.column_var[column] = key / 256, args.column_low[column] = part;
        }
    }
}

extern "C" __global__ void emit_words(const LoweringArguments args)
{
    const Long n_steps = args.summary[STEPS], n_constants = args.summary[CONSTANTS];
    if (max(args.summary[INSTRUCTIONS], max(n_steps, n_constants)) > args.most_words) return;
    for (int chunk = blockIdx.x; chunk < args.n_chunks; chunk += gridDim.x) {
        const int e = chunk * blockDim.x + threadIdx.x;
        if (e >= args.n_exprs) break;
        Several<COUNTS> places;
        for (int k = 0; k < COUNTS; ++k)
            places.at[k] = args.totals[Long(k) * args.n_chunks + chunk] + args.counts[Long(k) * args.n_exprs + e];
        args.first_instruction[e] = int(places.at[INSTRUCTIONS]);
        args.first_step[e] = int(places.at[STEPS]);
        args.cost[e] = places.at[COST];
        const Final final{{reinterpret_cast<unsigned *>(args.instructions)}, {args.sources}, {reinterpret_cast<int *>(args.steps)}};
        lower_one(args, e, memory_of(args.scratch, args.threads), places, Numbered{args.column_of, {nullptr}}, final, args.constants);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        args.first_step[args.n_exprs] = int(n_steps);
        args.cost[args.n_exprs] = args.summary[COST];
        args.constants[n_constants] = T(nan(""));
    }
}
