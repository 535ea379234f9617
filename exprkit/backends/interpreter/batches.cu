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

extern "C" __global__ void measure(const MeasureArguments args)
{
    __shared__ Long most[N_GROUPS * N_SIZES * NEEDS];
    for (int k = threadIdx.x; k < N_GROUPS * N_SIZES * NEEDS; k += blockDim.x) most[k] = 0;
    __syncthreads();
    const int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e < args.n_exprs && args.verdicts[e] == INVALID) args.key[e] = ~0u;
    else if (e < args.n_exprs) {
        Long need[NEEDS] = {args.n_params[e], 0, 0, 0, 1, 0};
        const int begin = args.first_instruction[e], end = e + 1 < args.n_exprs ? args.first_instruction[e + 1] : args.n_instructions;
        need[NEED_INSTRUCTIONS] = end - begin;
        for (int k = begin; k < end; ++k) {
            const unsigned action = args.instructions[k].action;
            if (action & SPILL) need[NEED_SLOTS] = max(need[NEED_SLOTS], Long((action >> SPILL_SHIFT & 0xff) + 1));
            if (args.rare_opcodes[action >> OPCODE_SHIFT]) need[IS_RARE] = 1;
        }
        need[NEED_RESULTS] = 2 * (args.first_step[e + 1] - args.first_step[e]);
        for (int k = args.first_step[e]; k < args.first_step[e + 1]; ++k)
            if (args.rare_steps[args.steps[k].code]) need[IS_RARE] = 1;
        const Long group = min(max(need[NEED_PARAMS], 1ll), Long(N_GROUPS)) - 1;
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
