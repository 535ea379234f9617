// What each expression needs of a block that fits it, and so whom it is launched with (batches.py): an expression per
// thread.

//{MeasureArguments}
//{batches}
//{verdicts}

//{arrays}

struct ArenaShape { Long tangents, warps, many, entry_bytes, result_bytes, progress_bytes, slot_bytes, active_bytes, row_bytes; };

//{translated}

// The most of everything: of the block's threads in ``most``, then of all blocks.
INLINE void raise_needs(Long *needs, Long *most)
{
    for (int k = threadIdx.x; k < N_GROUPS * N_SIZES * NEEDS; k += blockDim.x) {
        if (!most[k]) continue;
        if (k % NEEDS == MEMBERS) atomicAdd(reinterpret_cast<Bits *>(needs + k), Bits(most[k]));
        else if (most[k] > *const_cast<volatile Long *>(needs + k)) atomicMax(needs + k, most[k]);
    }
}

// Whether there are programs: those that need more room than there is are made later.
INLINE bool are_made(const MeasureArguments &args)
{
    const Long *summary = args.summary;
    return !summary || max(summary[INSTRUCTIONS], max(summary[STEPS], summary[CONSTANTS])) <= args.most_words;
}

extern "C" __global__ void measure(const MeasureArguments args)
{
    __shared__ Long most[N_GROUPS * N_SIZES * NEEDS];
    for (int k = threadIdx.x; k < N_GROUPS * N_SIZES * NEEDS; k += blockDim.x) most[k] = 0;
    __syncthreads();
    const int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e < args.n_exprs && (!are_made(args) || args.verdicts[e] == INVALID)) args.key[e] = ~0u;
    else if (e < args.n_exprs) {
        Long need[NEEDS] = {args.n_params[e], 0, 0, 0, 1, 0};
        const int n_instructions = args.summary ? int(args.summary[INSTRUCTIONS]) : args.n_instructions;
        const int begin = args.first_instruction[e], end = e + 1 < args.n_exprs ? args.first_instruction[e + 1] : n_instructions;
        need[NEED_INSTRUCTIONS] = end - begin;
        for (int k = begin; k < end; ++k) {
            const unsigned action = args.instructions[k].action;
            if (action & SPILL) need[NEED_SLOTS] = max(need[NEED_SLOTS], Long((action >> SPILL_SHIFT & 0xff) + 1));
            if (args.rare_opcodes[action >> OPCODE_SHIFT]) need[IS_RARE] = 1;
        }
        need[NEED_RESULTS] = 2 * (args.first_step[e + 1] - args.first_step[e]);
        for (int k = args.first_step[e]; k < args.first_step[e + 1]; ++k)
            if (args.rare_steps[args.steps[k].code]) need[IS_RARE] = 1;
        const Long group = min(max(need[NEED_PARAMS], 1ll), Long(PARAMETER_GROUPS)) - 1 + (need[IS_RARE] ? 0 : PARAMETER_GROUPS);
        const ArenaShape shape = reinterpret_cast<const ArenaShape *>(args.arenas)[group];
        const Several<8> ends = arena_ends(shape, need[NEED_PARAMS], need[NEED_INSTRUCTIONS], need[NEED_RESULTS], need[NEED_SLOTS]);
        const Long arena = ends.at[3] + shape.warps * ends.at[7];
        const Long batch = group * N_SIZES + (arena > args.small_arena * shape.warps) + (arena > args.shared_per_block);
        args.key[e] = unsigned(batch) << 16 | (0xffff - unsigned(min(need[NEED_INSTRUCTIONS], 0xffffll)));
        for (int k = 0; k < NEEDS; ++k) {
            Long *place = most + batch * NEEDS + k;
            if (k == MEMBERS) atomicAdd(reinterpret_cast<Bits *>(place), Bits(1));
            else if (need[k] > *const_cast<volatile Long *>(place)) atomicMax(place, need[k]);
        }
    }
    __syncthreads();
    raise_needs(args.needs, most);
}

constexpr int CLASSES = 256, BINS = N_GROUPS * N_SIZES * CLASSES + 1;  // of lengths; the last bin: in no batch

INLINE int bin_of(unsigned key)
{
    return key == ~0u ? BINS - 1 : int(key >> 16) * CLASSES + max(int(key & 0xffff) - (0x10000 - CLASSES), 0);
}

// Tell the host what was measured, and put expressions in order by counting, in one block.  Those of a bin stand as they
// come: who is fitted beside whom changes no fit.
extern "C" __global__ void __launch_bounds__(1024) put_in_order(const MeasureArguments args)
{
    __shared__ int place[BINS], sums[1024];
    const int t = threadIdx.x, own = (BINS + blockDim.x - 1) / blockDim.x;
    for (int k = t; k < N_GROUPS * N_SIZES * NEEDS; k += blockDim.x) {
        args.told[k] = args.needs[k];
        args.needs[k] = 0;
    }
    if (!args.order) return;
    for (int bin = t; bin < BINS; bin += blockDim.x) place[bin] = 0;
    __syncthreads();
    for (int e = t; e < args.n_exprs; e += blockDim.x) atomicAdd(place + bin_of(args.key[e]), 1);
    __syncthreads();
    const int first = min(t * own, BINS), stop = min(first + own, BINS);
    int sum = 0;
    for (int bin = first; bin < stop; ++bin) sum += place[bin];
    sums[t] = sum;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        const int more = t >= step ? sums[t - step] : 0;
        __syncthreads();
        sums[t] += more;
        __syncthreads();
    }
    int before = sums[t] - sum;
    for (int bin = first; bin < stop; ++bin) {
        const int here = place[bin];
        place[bin] = before;
        before += here;
    }
    __syncthreads();
    for (int e = t; e < args.n_exprs; e += blockDim.x) args.order[atomicAdd(place + bin_of(args.key[e]), 1)] = e;
}
