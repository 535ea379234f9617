// From tokens to bytecode on the device: the lowering and the accumulator programs of the host, an expression per thread.
//
// What is done with an expression stands in lower.py, rewrite.py and bytecode.py, whose functions are translated
// (translate.py); here is what they work with and where it goes.  Three launches:
//
//     count_words     lower every expression: how many words it has and which columns it uses; they stay as a draft
//     number_words    where each chunk of expressions begins, and the numbers of the columns (one block)
//     settle_words    bring every draft into its place, where each thread has had one expression
//     emit_words      else, or where there are too many variables: lower every expression again, into its place
//
// In a draft everything is counted from its expression on, and a column is its key + 1, 256 * variable + code + 1.
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

// A column: in the first pass it is noted, and its key stands for it; it has a number in the second.
struct Noting {
    unsigned char *wanted;
    Plain<Long> totals;
    INLINE Long column(Long key) const
    {
        if (!wanted[key]) wanted[key] = 1;
        return (key + 1) & OPERAND;  // with fewer variables than 256 all of it
    }
};
struct Numbered {
    const int *column_of;
    Plain<Long> totals;
    INLINE Long column(Long key) const { return column_of[key]; }
};
template <class Code, class Var, class R, class Output> INLINE Long column_number(Code code, Var var, R, Output output)
{
    return output.column(var * 256 + code);
}

// Equal numbers stay apart.
template <class R, class Constants> INLINE Long _computed_before(R, Long, Long instr, Constants) { return instr; }

// Bytecode: of a thread's own in the first pass, everybody's in the second.
struct Draft { Own<unsigned, 2> instructions; Own<int> sources; Own<int, 4> steps; };
INLINE Draft draft_of(Memory &memory, Long most)
{
    return Draft{memory.take<unsigned, 2>(most), memory.take<int>(most), memory.take<int, 4>(most)};
}
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

// Sums of the block's numbers before this thread's, N at a time; ``sums`` has those of all first warps then, at last of all.
template <int N> INLINE Several<N> sums_before(const Several<N> &numbers, Long (&sums)[N][32])
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, n_warps = blockDim.x / LANES;
    Several<N> before;
    for (int k = 0; k < N; ++k) {
        before.at[k] = sum_of_lanes(numbers.at[k]);
        if (lane == LANES - 1) sums[k][warp] = before.at[k];
    }
    __syncthreads();
    for (int k = warp; k < N; k += n_warps) {
        const Long up_to_here = sum_of_lanes(lane < n_warps ? sums[k][lane] : 0);
        if (lane < n_warps) sums[k][lane] = up_to_here;
    }
    __syncthreads();
    for (int k = 0; k < N; ++k) before.at[k] += (warp > 0 ? sums[k][warp - 1] : 0) - numbers.at[k];
    return before;
}

INLINE Long sum_of_all(const Long *sums) { return sums[blockDim.x / LANES - 1]; }

extern "C" __global__ void count_words(const LoweringArguments args)
{
    let_next_begin();
    __shared__ Long sums[COUNTS][32];  // a warp each
    const Long most = args.most_nodes;
    int n_slots = 0;
    Long traits = 0;
    for (int chunk = blockIdx.x; chunk < args.n_chunks; chunk += gridDim.x) {
        const int e = chunk * blockDim.x + threadIdx.x;
        Several<COUNTS> counts = {};
        if (e < args.n_exprs) {
            Memory memory = memory_of(args.scratch, args.threads);
            const Draft draft = draft_of(memory, most);
            const auto found = lower_one(args, e, memory, Several<COUNTS>{}, Noting{args.wanted, {nullptr}}, draft, nullptr);
            for (int k = 0; k < COUNTS; ++k) counts.at[k] = found.at[k];
            n_slots = max(n_slots, int(found.at[COUNTS]));
            traits |= found.at[COUNTS + 1];
        }
        const Several<COUNTS> before = sums_before<COUNTS>(counts, sums);
        for (int k = 0; k < COUNTS; ++k) {
            if (e < args.n_exprs) args.counts[Long(k) * args.n_exprs + e] = int(before.at[k]);
            if (threadIdx.x == 0) args.totals[Long(k) * args.n_chunks + chunk] = sum_of_all(sums[k]);
        }
        __syncthreads();
    }
    volatile const Long &most_slots = args.summary[N_SLOTS_SO_FAR];
    if (n_slots > most_slots) atomicMax(args.summary + N_SLOTS_SO_FAR, Long(n_slots));
    volatile const Long &known = args.summary[TRAITS_SO_FAR];
    if (traits & ~known) atomicOr(reinterpret_cast<Bits *>(args.summary + TRAITS_SO_FAR), Bits(traits));
}

extern "C" __global__ void __launch_bounds__(1024) number_words(const LoweringArguments args)
{
    __shared__ Long sums[COUNTS + 1][32];  // of chunks, and of columns; a warp each
    let_next_begin();
    wait_for_previous();
    const int own = (args.n_chunks + blockDim.x - 1) / blockDim.x, n_keys = 256 * args.n_vars;
    const int first = min(int(threadIdx.x) * own, args.n_chunks), stop = min(first + own, args.n_chunks);
    const int keys = (n_keys + blockDim.x - 1) / blockDim.x;
    const int first_key = min(int(threadIdx.x) * keys, n_keys), stop_key = min(first_key + keys, n_keys);
    Several<COUNTS + 1> sum = {};
    for (int c = first; c < stop; ++c)
        for (int k = 0; k < COUNTS; ++k) sum.at[k] += args.totals[Long(k) * args.n_chunks + c];
    for (int key = first_key; key < stop_key; ++key) sum.at[COUNTS] += args.wanted[key] ? args.width[key % 256] : 0;
    Several<COUNTS + 1> before = sums_before<COUNTS + 1>(sum, sums);
    if (threadIdx.x == 0) {
        for (int k = 0; k < COUNTS; ++k) args.summary[k] = sum_of_all(sums[k]);
        args.summary[N_COLUMNS] = sum_of_all(sums[COUNTS]);
        args.summary[N_SLOTS] = args.summary[N_SLOTS_SO_FAR];
        args.summary[TRAITS] = args.summary[TRAITS_SO_FAR];
        args.summary[N_SLOTS_SO_FAR] = args.summary[TRAITS_SO_FAR] = 0;
        for (int k = 0; k < SUMMARY; ++k) args.told[k] = args.summary[k];
        tell(args.told + SUMMARY, args.ticket);
    }
    for (int c = first; c < stop; ++c)
        for (int k = 0; k < COUNTS; ++k) {
            Long &total = args.totals[Long(k) * args.n_chunks + c];
            const Long here = total;
            total = before.at[k];
            before.at[k] += here;
        }
    int column = int(before.at[COUNTS]);
    for (int key = first_key; key < stop_key; ++key) {
        if (!args.wanted[key]) continue;
        args.wanted[key] = 0;
        args.column_of[key] = column;
        for (int part = 0; part < args.width[key % 256]; ++part, ++column) {
            if (column >= args.most_columns) continue;
            args.column_code[column] = key % 256, args.column_var[column] = key / 256, args.column_low[column] = part;
        }
    }
}

// Whether there is no room for all words.
INLINE bool are_too_many(const LoweringArguments &args)
{
    return larger(args.summary[INSTRUCTIONS], larger(args.summary[STEPS], args.summary[CONSTANTS])) > args.most_words;
}

// Where an expression's words begin; behind the last one, where all end.
INLINE Several<COUNTS> places_of(const LoweringArguments &args, int e)
{
    Several<COUNTS> places;
    for (int k = 0; k < COUNTS; ++k) {
        const Long chunk = Long(k) * args.n_chunks + e / int(blockDim.x);
        places.at[k] = e < args.n_exprs ? args.totals[chunk] + args.counts[Long(k) * args.n_exprs + e] : args.summary[k];
    }
    return places;
}

INLINE void begin_expression(const LoweringArguments &args, int e, const Several<COUNTS> &places)
{
    args.first_instruction[e] = int(places.at[INSTRUCTIONS]);
    args.first_step[e] = int(places.at[STEPS]);
    args.cost[e] = places.at[COST];
}

INLINE void end_expressions(const LoweringArguments &args)
{
    if (blockIdx.x || threadIdx.x) return;
    args.first_step[args.n_exprs] = int(args.summary[STEPS]);
    args.cost[args.n_exprs] = args.summary[COST];
    args.constants[args.summary[CONSTANTS]] = T(nan(""));
}

// A draft's source among those of all.
INLINE int settled(int source, const Several<COUNTS> &places)
{
    const int kind = source & SOURCE_KIND;
    const Long before = kind == CONSTANT ? places.at[CONSTANTS] : kind == RESULT ? places.at[RESULTS] : 0;
    return source + (int(before) << SOURCE_SHIFT);
}

extern "C" __global__ void settle_words(const LoweringArguments args)
{
    wait_for_previous();
    const int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (are_too_many(args)) return;
    end_expressions(args);
    if (e >= args.n_exprs) return;
    Memory memory = memory_of(args.scratch, args.threads);
    const Draft draft = draft_of(memory, args.most_nodes);
    const Own<double> constants = memory.take<double>(args.most_nodes);  // the first of ``Room``
    const Several<COUNTS> places = places_of(args, e), ends = places_of(args, e + 1);
    begin_expression(args, e, places);
    const bool unreadable = args.offsets[e] == args.offsets[e + 1];
    const int nan_source = int(args.summary[CONSTANTS]) << SOURCE_SHIFT | CONSTANT;
    for (Long k = 0, i = places.at[INSTRUCTIONS]; i < ends.at[INSTRUCTIONS]; ++k, ++i) {
        const unsigned action = draft.instructions.get(k, ACTION), drafted = draft.instructions.get(k, PLACES);
        const unsigned loaded = drafted >> LOAD_SHIFT, operand = drafted & OPERAND;
        const unsigned column = action & LOAD ? args.column_of[loaded - 1] : 0;
        const bool in_column = operand && !(action & FROM_SLOT);
        args.instructions[i] = Instruction{action, column << LOAD_SHIFT | (in_column ? args.column_of[operand - 1] : operand)};
        args.sources[i] = unreadable ? nan_source : settled(draft.sources.get(k), places);
    }
    const Plain<int, 4> steps{reinterpret_cast<int *>(args.steps)};
    for (Long k = 0, s = places.at[STEPS]; s < ends.at[STEPS]; ++k, ++s) {
        steps.set(s, 0, draft.steps.get(k, 0));
        steps.set(s, 1, settled(int(draft.steps.get(k, 1)), places));
        steps.set(s, 2, settled(int(draft.steps.get(k, 2)), places));
        steps.set(s, 3, draft.steps.get(k, 3) + 2 * places.at[RESULTS]);
    }
    for (Long k = 0, c = places.at[CONSTANTS]; c < ends.at[CONSTANTS]; ++k, ++c) args.constants[c] = T(constants.get(k));
}

extern "C" __global__ void emit_words(const LoweringArguments args)
{
    wait_for_previous();
    if (are_too_many(args)) return;
    end_expressions(args);
    for (int chunk = blockIdx.x; chunk < args.n_chunks; chunk += gridDim.x) {
        const int e = chunk * blockDim.x + threadIdx.x;
        if (e >= args.n_exprs) break;
        const Several<COUNTS> places = places_of(args, e);
        begin_expression(args, e, places);
        const Final final{{reinterpret_cast<unsigned *>(args.instructions)}, {args.sources}, {reinterpret_cast<int *>(args.steps)}};
        lower_one(args, e, memory_of(args.scratch, args.threads), places, Numbered{args.column_of, {nullptr}}, final, args.constants);
    }
}
