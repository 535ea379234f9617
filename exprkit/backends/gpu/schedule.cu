// Who works on what: the items of a launch, cut into chunks of about the same cost (schedule.py has the places).
//
// Plainly, for chunk c of partition p:
//
//     its place on the line of all work, and that of the chunk behind it on that line
//     work = start + rint(place * work of a partition)
//     the item that holds this cost is the chunk's first, and the next chunk's first its end
//
// Items are whole, so a chunk may come out empty.  A warp stops at the first one, so those go to the end of a partition.

//{ScheduleArguments}

INLINE Long cost_before(const ScheduleArguments &args, Long e) { return args.cost[e] + e * args.cost_of_result; }

// Work of all items before one.
INLINE Long work_before(const ScheduleArguments &args, Long item)
{
    return item / args.n_exprs * cost_before(args, args.n_exprs) + cost_before(args, item % args.n_exprs);
}

struct Items { Long first, stop; };

constexpr int PARTS = 8;  // that a search is narrowed down to one of: what takes time is to wait for memory, once for all

// The first items with so much work before them; both are looked for at a time.
INLINE Items items_at(const ScheduleArguments &args, Long first, Long stop)
{
    const Long of_a_set = cost_before(args, args.n_exprs), sets[2] = {first / of_a_set, stop / of_a_set};
    const Long wanted[2] = {first - sets[0] * of_a_set, stop - sets[1] * of_a_set};
    Long low[2] = {0, 0}, high[2] = {args.n_exprs, args.n_exprs};
    while (low[0] < high[0] || low[1] < high[1]) {
        Long edge[2][PARTS - 1], cost[2][PARTS - 1];
        for (int k = 0; k < 2; ++k) {
#pragma unroll
            for (int j = 0; j < PARTS - 1; ++j) {
                edge[k][j] = low[k] + (high[k] - low[k]) * (j + 1) / PARTS;
                cost[k][j] = cost_before(args, edge[k][j]);
            }
        }
        for (int k = 0; k < 2; ++k) {
            if (low[k] >= high[k]) continue;
#pragma unroll
            for (int j = PARTS - 2; j >= 0; --j)
                if (cost[k][j] >= wanted[k]) high[k] = edge[k][j];
#pragma unroll
            for (int j = 0; j < PARTS - 1; ++j)
                if (cost[k][j] < wanted[k]) low[k] = edge[k][j] + 1;
        }
    }
    return Items{sets[0] * args.n_exprs + low[0], sets[1] * args.n_exprs + low[1]};
}

INLINE Long instruction_of(const ScheduleArguments &args, Long item)
{
    return item / args.n_exprs * args.n_instructions + args.first_instruction[item % args.n_exprs];
}

// A warp per partition.
extern "C" __global__ void cut_chunks(const ScheduleArguments args)
{
    const int partition = (blockIdx.x * blockDim.x + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
    wait_for_previous();
    if (partition >= args.n_partitions) return;
    const Long start = work_before(args, args.first), end = work_before(args, args.stop);
    const double work_of_one = double(end - start) / args.n_partitions;
    const int n_edges = args.n_partitions * args.n_chunks;
    Chunk *chunks = args.chunks + Long(partition) * args.n_chunks;
    int n = 0;  // chunks with items
    for (int c = lane; c - lane < args.n_chunks; c += LANES) {
        Chunk chunk{0, 0, 0, 0};
        if (c < args.n_chunks) {
            const int rank = args.rank[Long(partition) * args.n_chunks + c];
            const bool ends = rank + 1 == n_edges;
            const double next = ends ? args.place[rank] : args.place[rank + 1];
            Items found = items_at(args, start + Long(rint(args.place[rank] * work_of_one)), start + Long(rint(next * work_of_one)));
            const Long first = found.first, stop = ends ? args.stop : found.stop;
            const Long from = instruction_of(args, first), to = instruction_of(args, stop);
            chunk = Chunk{int(first - args.first), int(stop - first), int(from), int(to - from)};
        }
        const unsigned mask = __ballot_sync(0xffffffffu, chunk.n_items > 0);
        if (chunk.n_items > 0) chunks[n + __popc(mask & ((1u << lane) - 1))] = chunk;
        n += __popc(mask);
    }
    for (int c = n + lane; c < args.n_chunks; c += LANES) chunks[c] = Chunk{0, 0, 0, 0};
}
