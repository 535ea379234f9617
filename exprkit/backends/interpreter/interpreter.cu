// The GPU interpreter: one launch runs a whole population on all of its data points.
//
// What is computed, plainly:
//
//     for tile of TILE points:                          (a block: the tile's columns in shared memory)
//         for item in (parameter set, expression):      (a warp takes the block's next few)
//             for instruction in its program:
//                 accumulator = operator(accumulator, operand)      (POINTS points per thread at once)
//             hand the accumulator on: into the matrix, or into the sum of a loss
//
// An instruction is decoded once for all points of a thread.  Its operand is a column, a spilled accumulator
// (a slot) or an immediate, the same for all points.  Programs of consecutive expressions are one
// stream of instructions; a warp keeps a buffer of the next LANES instructions in shared memory.
//
//     instructions  action: opcode << 16 | slot << 8 | END | LOAD | SPILL | FROM_SLOT (layout.py)
//                   places: column to load << 16 | operand's column or slot
//     immediates    [set][instruction]: a number and, of a double-double, its low part
//     columns       [column][pitch]: padded to whole tiles with the last point
//     shared        the block's work item, each warp's next chunk, its instruction buffer, [column][TILE],
//                   target and weights (or all that a loss of the user's own reads), each warp's slots
//
// The opcodes' cases are generated from the table in ops.py.  points.cu has what they do to an accumulator, results.cu
// what becomes of it at the end of a program, schedule.py which block works on what.

#if !SUPPORT

// Where a warp finds things; the shared ones without the lane's share.
struct Frame {
    unsigned coming, buffer, tile, slots;  // coming: the warp's next chunk; the one after that takes turns with it
    const T *columns;  // first point of column 0, MARGIN early, without COLUMNS_SHARED
};

// An instruction and its immediate.  Nothing may be computed of them here: they are on their way, and a warp would wait for them.
INLINE Record fetch(const Arguments &args, int instruction)
{
    const Instruction w = args.instructions[instruction % args.n_instructions];
    return Record{w.action, w.places, args.immediates[instruction]};
}

// An instruction for the buffer: its column and slot become addresses in units of vectors.
INLINE Record placed(const Frame &frame, const Record &instruction)
{
    if (!COLUMNS_SHARED) return instruction;
    const unsigned of_operand = instruction.action & FROM_SLOT ? frame.slots : frame.tile;
    const unsigned operand = (of_operand + (instruction.places & OPERAND) * ROW_BYTES) / VECTOR_BYTES;
    const unsigned loaded = (frame.tile + (instruction.places >> LOAD_SHIFT) * ROW_BYTES) / VECTOR_BYTES;
    return Record{instruction.action, loaded << LOAD_SHIFT | operand, instruction.immediate};
}

INLINE Place find(const Arguments &args, const Frame &frame, unsigned place, bool slot, unsigned lane_bytes)
{
    if (COLUMNS_SHARED) return Place{place * VECTOR_BYTES + lane_bytes, nullptr, 0};
    const T *columns = frame.columns + place * args.pitch + (lane_bytes / VECTOR_BYTES - threadIdx.x % LANES) * WIDTH;
    return Place{frame.slots + place * ROW_BYTES + lane_bytes, slot ? nullptr : columns, args.pitch};
}

// Where in the row of a column or slot a lane finds its first vector of an item.
INLINE unsigned lane_place(const T *row, int lane) { return (lane + MARGIN - early_by(row)) * VECTOR_BYTES; }

// Run a chunk; ``next`` holds its first instructions, and then those of the chunk behind it.
INLINE void execute(const Arguments &args, const Frame &frame, Sink &sink, const Chunk &chunk, Record &next, int lane)
{
    const unsigned buffer_end = frame.buffer + LANES * sizeof(Record);
    unsigned lane_bytes = lane_place(sink.row, lane);
    int instruction = chunk.instruction + lane, instructions_left = chunk.n_instructions, item = chunk.item, left = chunk.n_items;
    unsigned cursor = buffer_end;
    T acc[POINTS];
    while (true) {
        if (cursor == buffer_end) {
            cursor = frame.buffer;
            __syncwarp();
            store_shared(cursor + lane * unsigned(sizeof(Record)), placed(frame, next));
            __syncwarp();
            instruction += LANES;
            instructions_left -= LANES;
            if (instructions_left <= 0) {  // of this chunk; the next one follows
                end_copies<1>();
                __syncwarp();
                instruction = load_shared<Chunk>(frame.coming).instruction + lane;
            }
            next = fetch(args, instruction);
        }
        const Record now = load_shared<Record>(cursor);
        cursor += sizeof(Record);
        const unsigned action = now.action;
        if (action & SPILL) {
            if (MARGIN) __syncwarp();  // of the item before, this place may have been another lane's
            spill(acc, frame.slots + (action >> SPILL_SHIFT & 0xffu) * ROW_BYTES + lane_bytes);
        }
        if (action & LOAD) with_memory(acc, find(args, frame, now.places >> LOAD_SHIFT, false, lane_bytes), [](T, T b) { return b; });
        const Place memory = find(args, frame, now.places & OPERAND, action & FROM_SLOT, lane_bytes);
        const T high = now.immediate.high, a_low = now.immediate.low;
        const int opcode = action >> OPCODE_SHIFT;
        if (opcode < COMMON_OPCODES) {
            switch (opcode) {
            //{common cases}
            default: __builtin_unreachable();
            }
        } else {
            switch (opcode) {
            //{other cases}
            default: __builtin_unreachable();
            }
        }
        if (action & END) {
            if (COUNTED) count_nonfinite(args, acc, item, sink, early_by(sink.row), lane);
            const bool whole = sink.left == TILE && (MARGIN == 0 || !sink.is_first);
            if (TASK == VALUES && whole) write<true>(acc, sink, early_by(sink.row), lane);
            else if (TASK == VALUES) write<false>(acc, sink, early_by(sink.row), lane);
            else add_up(args, acc, item, sink, lane);
            if (--left == 0) return;
            ++item;
            sink.row += args.n_points;
            sink.partial += args.n_segments;
            if (MARGIN) lane_bytes = lane_place(sink.row, lane);
        }
    }
}

// Begin to copy the tile of all columns at point ``start``, MARGIN early, into shared memory.
INLINE void load_columns(const Arguments &args, unsigned tile, Long start)
{
    constexpr int N = ROW_BYTES / VECTOR_BYTES;
    for (int i = threadIdx.x; i < args.n_columns * N; i += BLOCK) {
        const T *column = args.columns + i / N * args.pitch + start - MARGIN * WIDTH;
        if (SPREAD) store_shared(tile + i * VECTOR_BYTES, load_global(column + i % N / LANES * SEGMENT, i % N % LANES));
        else begin_copy(tile + i * VECTOR_BYTES, reinterpret_cast<const Vector *>(column + i % N * WIDTH));
    }
}

// The same for one value per point, with zeros behind the last one.
INLINE void load_values(const Arguments &args, unsigned tile, const T *values, Long start)
{
    for (int i = threadIdx.x; i < TILE / WIDTH; i += BLOCK) {
        Vector v;
        for (int k = 0; k < WIDTH; ++k) {
            const Long point = start + i * WIDTH + k;
            v.at[k] = point < args.n_points ? values[point] : T(0);
        }
        store_shared(tile + i * VECTOR_BYTES, v);
    }
}

// What a block works on; in shared memory, since registers are short.
struct __align__(16) WorkItem {
    int index, tile;
    int next_chunk, stop;  // that a warp can take, and the first that is not the partition's
};

// Have chunk ``r`` of a partition brought to ``to``, by lane 0; one without items from ``stop`` on.
INLINE void bring_chunk(unsigned to, const Chunk *chunks, int r, int stop)
{
    if (r < stop) begin_copy(to, chunks + r);
    else store_shared(to, Chunk{0, 0, 0, 0});
    group_copies();
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) interpret(const Arguments args)
{
    extern __shared__ __align__(32) Vector shared[];
    volatile WorkItem *now = reinterpret_cast<volatile WorkItem *>(shared);
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int n_rows = COLUMNS_SHARED ? args.n_columns : 0, n_targets = TASK == VALUES ? 0 : TASK == TEXT ? TARGETS : 1 + WEIGHTED;
    const unsigned base = shared_address(shared) + (2 + 2 * WARPS) * VECTOR_BYTES, tile = base + BLOCK * sizeof(Record);
    const unsigned targets = tile + n_rows * ROW_BYTES, slots = targets + n_targets * TILE_BYTES;
    Frame frame;
    frame.coming = base - (2 + 2 * warp) * VECTOR_BYTES;
    frame.buffer = base + warp * LANES * unsigned(sizeof(Record));
    frame.tile = tile;
    frame.slots = slots + warp * args.n_slots * ROW_BYTES;
    Sink sink;
    sink.target = targets + lane * VECTOR_BYTES;
    let_next_begin();
    for (int work_item = blockIdx.x; work_item < args.n_work_items; work_item = now->index + gridDim.x) {
        const int partition = work_item / args.n_tiles, t = args.first_tile + work_item % args.n_tiles;
        const int r = partition * args.n_chunks + warp, stop = (partition + 1) * args.n_chunks;
        const Long start = Long(t) * TILE;
        __syncthreads();
        if (threadIdx.x == 0) {
            now->index = work_item, now->tile = t;
            now->next_chunk = r + 2 * WARPS, now->stop = stop;
        }
        if (COLUMNS_SHARED) load_columns(args, tile, start);
        Chunk chunk = r < stop ? args.chunks[r] : Chunk{0, 0, 0, 0};
        if (lane == 0) bring_chunk(frame.coming, args.chunks, r + WARPS, stop);
        if (work_item == blockIdx.x) wait_for_previous();
        Record next = fetch(args, chunk.instruction + lane);
        if (n_targets > 0) load_values(args, targets, args.target, start);
        if (n_targets > 1 && TASK != TEXT) load_values(args, targets + TILE_BYTES, args.weights, start);
        for (int c = 1; TASK == TEXT && c < n_targets; ++c) {
            const T *values = WEIGHTED && c == n_targets - 1 ? args.weights : args.beside + (c - 1) * args.n_points;
            load_values(args, targets + c * TILE_BYTES, values, start);
        }
        end_copies<0>();
        __syncthreads();
        frame.columns = args.columns + start - MARGIN * WIDTH;
        sink.left = int(min(args.n_points - start, Long(TILE)));
        sink.is_first = start == 0;
        while (chunk.n_items > 0) {
            const unsigned other = frame.coming ^ VECTOR_BYTES;
            __syncwarp();
            if (lane == 0) bring_chunk(other, args.chunks, atomicAdd((int *)&now->next_chunk, 1), now->stop);
            sink.row = args.out + chunk.item * args.n_points + Long(now->tile) * TILE;
            sink.partial = args.partials + Long(chunk.item) * args.n_segments + own_segment(lane);
            sink.partial += Long(now->tile) * VECTORS - args.first_segment;
            execute(args, frame, sink, chunk, next, lane);
            chunk = load_shared<Chunk>(frame.coming);
            frame.coming = other;
        }
        end_copies<0>();
    }
}

#endif
