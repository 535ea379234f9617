// The GPU interpreter: one launch runs a whole population on all of its data points.
//
// What is computed, plainly:
//
//     for tile of TILE points:                          (a block: the tile's columns in shared memory)
//         for item in (parameter set, expression):      (a warp takes the block's next few)
//             for word in its program:
//                 accumulator = operator(accumulator, operand)      (POINTS points a thread at once)
//             hand the accumulator on: into the matrix, or into the sum of a loss
//
// A word is decoded once for all points of a thread.  Its operand is a column, a spilled accumulator
// (a slot) or a number that is the same for all points.  Programs of consecutive expressions are one
// stream of words; a warp keeps a strip of the next LANES words in shared memory.
//
//     words     action: case << 16 | slot << 8 | END | LOAD | SPILL | SLOT
//               places: column to load << 16 | operand's column or slot
//     numbers   [set][word]: the word's number and, of a pair, its low part
//     columns   [column][pitch]: padded to whole tiles with the last point
//     shared    what the block works on, each warp's next run, its strip of words, its scratch, [column][TILE],
//               target and weights, each warp's slots
//
// The operators' cases are generated from the table in ops.py; everything else is written here.

#if !SUPPORT

// ── shared memory by its 32-bit address ──────────────────────────────────────────────

constexpr unsigned VECTOR_BYTES = 16, CHUNK_BYTES = CHUNK * sizeof(T), TILE_BYTES = TILE * sizeof(T);

// The device's memory takes whole lines of LINE bytes best, and rows of results begin anywhere in one.  So a warp begins
// a tile up to MARGIN vectors early, at a line of its item's row.
constexpr unsigned LINE = TILE_BYTES < 256 ? TILE_BYTES : 256;
constexpr int MARGIN = TASK == VALUES && WIDE ? LINE / VECTOR_BYTES - 1 : 0;
constexpr unsigned ROW_BYTES = TILE_BYTES + MARGIN * VECTOR_BYTES;  // of a column or slot

// Where rows begin at no multiple of 16 bytes, a vector holds points that are LANES apart: stores of a warp are dense.
constexpr bool SPREAD = TASK == VALUES && !WIDE;
INLINE int first_of_lane(int lane) { return SPREAD ? lane : lane * WIDTH; }
constexpr INLINE int offset_in_lane(int j, int k) { return j * CHUNK + (SPREAD ? k * LANES : k); }

// Which of a lane's points (by their offsets) are points of the data.
struct Span {
    int first, stop;

    INLINE bool has(int offset) const { return (MARGIN == 0 || offset >= first) && offset < stop; }
};

#ifndef EMULATED
// The compiler would compute a generic pointer anew for every word of a program.
INLINE unsigned shared_address(const void *pointer)
{
    unsigned address = unsigned(__cvta_generic_to_shared(pointer));
    asm volatile("" : "+r"(address));
    return address;
}

template <class V> INLINE V load_shared(unsigned address)
{
    unsigned part[sizeof(V) / 4];
#pragma unroll
    for (int i = 0; i < sizeof(V) / 4; i += 4)
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(part[i]), "=r"(part[i + 1]), "=r"(part[i + 2]), "=r"(part[i + 3]) : "r"(address + 4 * i) : "memory");
    return *reinterpret_cast<V *>(part);
}

template <class V> INLINE void store_shared(unsigned address, V value)
{
    const unsigned *part = reinterpret_cast<const unsigned *>(&value);
#pragma unroll
    for (int i = 0; i < sizeof(V) / 4; i += 4)
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                     :: "r"(address + 4 * i), "r"(part[i]), "r"(part[i + 1]), "r"(part[i + 2]), "r"(part[i + 3]) : "memory");
}

// 16 bytes from global to shared memory, past the registers.
template <class V> INLINE void begin_copy(unsigned to, const V *from)
{
    static_assert(sizeof(V) == 16);
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
#else
    store_shared(to, *from);
#endif
}

// What was begun since the last call belongs together.
INLINE void group_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Wait for all of this thread's groups but the last PENDING.
template <int PENDING> INLINE void end_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
#endif
}
#endif

// This lane's vector of a column from ``at`` on.
INLINE Vector load_global(const T *at, int lane)
{
    if (!SPREAD) return *reinterpret_cast<const Vector *>(at + lane * WIDTH);
    Vector v;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) v.at[k] = at[k * LANES + lane];
    return v;
}

// ── an operator on all points of a thread ────────────────────────────────────────────

// Where a thread finds its first vector of an operand (a warp, in global memory); the others follow, a chunk apart.
struct Place {
    unsigned shared;
    const T *global;  // only without COLUMNS_SHARED, and not for slots
    Long pitch;

    INLINE Vector load(int j) const
    {
        if (COLUMNS_SHARED || global == nullptr) return load_shared<Vector>(shared + j * CHUNK_BYTES);
        return load_global(global + j * CHUNK, threadIdx.x % LANES);
    }
    INLINE Place next() const { return Place{shared + ROW_BYTES, COLUMNS_SHARED ? nullptr : global + pitch, pitch}; }
};

// acc = f(acc)
template <class F> INLINE void alone(T (&acc)[POINTS], F f)
{
#pragma unroll
    for (int k = 0; k < POINTS; ++k) acc[k] = f(acc[k]);
}

// acc = f(acc, number)
template <class F> INLINE void with_number(T (&acc)[POINTS], T number, F f)
{
#pragma unroll
    for (int k = 0; k < POINTS; ++k) acc[k] = f(acc[k], number);
}

// acc = f(acc, memory)
template <class F> INLINE void with_memory(T (&acc)[POINTS], const Place &memory, F f)
{
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const Vector b = memory.load(j);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) acc[j * WIDTH + k] = f(acc[j * WIDTH + k], b.at[k]);
    }
}

// acc = f(acc, pair in memory)
template <class F> INLINE void with_pair(T (&acc)[POINTS], const Place &high, F f)
{
    const Place low = high.next();
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const Vector a = high.load(j), a_low = PAIRS ? low.load(j) : a;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) acc[j * WIDTH + k] = f(acc[j * WIDTH + k], a.at[k], a_low.at[k]);
    }
}

INLINE void set(T (&acc)[POINTS], T number)
{
#pragma unroll
    for (int k = 0; k < POINTS; ++k) acc[k] = number;
}

INLINE void spill(const T (&acc)[POINTS], unsigned slot)
{
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        Vector v;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) v.at[k] = acc[j * WIDTH + k];
        store_shared(slot + j * CHUNK_BYTES, v);
    }
}

// Move all points up by one vector; ``y`` becomes the last.
INLINE void shift_in(T (&acc)[POINTS], const T (&y)[WIDTH])
{
#pragma unroll
    for (int k = 0; k < POINTS - WIDTH; ++k) acc[k] = acc[k + WIDTH];
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) acc[POINTS - WIDTH + k] = y[k];
}

// Operators of long code: it stands there once for WIDTH points, and the accumulator goes round.
template <class F> INLINE void go_round(T (&acc)[POINTS], F f)
{
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        T y[WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) y[k] = f(acc[k]);
        shift_in(acc, y);
    }
}

template <class F> INLINE void go_round(T (&acc)[POINTS], int form, const Place &memory, T number, F f)
{
    const bool first = form & 1, is_number = form & 2;
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        Vector b;
        if (is_number) {
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) b.at[k] = number;
        } else {
            b = memory.load(j);
        }
        T y[WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) y[k] = f(first ? b.at[k] : acc[k], first ? acc[k] : b.at[k]);
        shift_in(acc, y);
    }
}

// The same with a formula for the usual operands.  Where it does not hold for all of a lane's points of a round, it still
// is what counts for those where it does: neighbours change no bits.

INLINE bool mostly(bool yes)
{
#ifdef EMULATED
    return yes;
#else
    return __builtin_expect(yes, 1);
#endif
}

template <class U, class F> INLINE void go_round(T (&acc)[POINTS], U usual, F f)
{
    go_round(acc, 2, Place{}, T(0), [usual](T a, T, bool &holds) { return usual(a, holds); }, [f](T a, T) { return f(a); });
}

template <class U, class F>
INLINE void go_round(T (&acc)[POINTS], int form, const Place &memory, T number, U usual, F f)
{
    const bool first = form & 1, is_number = form & 2;
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        Vector other;
        if (!is_number) other = memory.load(j);
        T a[WIDTH], b[WIDTH], y[WIDTH];
        bool holds = true;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const T operand = is_number ? number : other.at[k];
            a[k] = first ? operand : acc[k];
            b[k] = first ? acc[k] : operand;
            y[k] = usual(a[k], b[k], holds);
        }
        if (!mostly(holds)) {
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) {
                bool here = true;
                usual(a[k], b[k], here);
                const T whole = f(a[k], b[k]);
                y[k] = here ? y[k] : whole;
            }
        }
        shift_in(acc, y);
    }
}

// The same for operators that take a pair: its columns (form 0) or numbers (1) with the accumulator, or columns
// with a number (2).
template <class U, class F>
INLINE void go_round_pair(T (&acc)[POINTS], int form, const Place &memory, T high, T low, U usual, F f)
{
    const Place low_memory = memory.next();
#pragma unroll 1
    for (int j = 0; j < VECTORS; ++j) {
        Vector one, one_low;
        if (form != 1) {
            one = memory.load(j);
            one_low = low_memory.load(j);
        }
        T a[WIDTH], a_low[WIDTH], b[WIDTH], y[WIDTH];
        bool holds = true;
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            a[k] = form == 1 ? high : one.at[k];
            a_low[k] = form == 1 ? low : one_low.at[k];
            b[k] = form == 2 ? high : acc[k];
            y[k] = usual(b[k], a[k], a_low[k], holds);
        }
        if (!mostly(holds)) {
#pragma unroll
            for (int k = 0; k < WIDTH; ++k) {
                bool here = true;
                usual(b[k], a[k], a_low[k], here);
                const T whole = f(b[k], a[k], a_low[k]);
                y[k] = here ? y[k] : whole;
            }
        }
        shift_in(acc, y);
    }
}

// ── what becomes of an item's values ─────────────────────────────────────────────────

// Where a thread's results of the current item go.
struct Sink {
    T *row;             // VALUES: the tile's first point
    T *partial;         // else: the (first) sum that this lane writes
    unsigned target;    // this lane's first target value; one tile on, the weights
    int left;           // points of the data from the tile's first one on, TILE at the most
    bool is_first;      // the tile begins with the first point
};

// Add up over the lanes: lane 0 (or, of VECTORS = 2, 4 and 8, the first lane of each half, quarter or eighth) gets a
// chunk's sum.  Lane and partner always add the same two numbers, so the bits don't depend on VECTORS.
INLINE void add_lanes_shuffle(T (&sum)[VECTORS], int lane)
{
    int step = LANES / 2;
    if (LANES > 1 && (VECTORS == 2 || VECTORS == 4 || VECTORS == 8)) {
#pragma unroll
        for (int half = VECTORS / 2; half > 0; half /= 2, step /= 2) {
            const bool upper = lane & step;
#pragma unroll
            for (int c = 0; c < half; ++c) {
                const T keep = upper ? sum[c + half] : sum[c], give = upper ? sum[c] : sum[c + half];
                sum[c] = keep + __shfl_xor_sync(0xffffffffu, give, step);
            }
        }
        for (; step > 0; step /= 2) sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], step);
    } else {
        for (; step > 0; step /= 2) {
#pragma unroll
            for (int c = 0; c < VECTORS; ++c) sum[c] += __shfl_xor_sync(0xffffffffu, sum[c], step);
        }
    }
}

constexpr bool SCATTERED = REDUCTION == SHUFFLE && LANES > 1 && (VECTORS == 2 || VECTORS == 4 || VECTORS == 8);

// Which chunk's sum a lane writes first.
INLINE int own_chunk(int lane) { return SCATTERED ? lane / (LANES / VECTORS) : 0; }

INLINE int sums_written(int lane, int present)
{
    if (SCATTERED) return lane % (LANES / VECTORS) == 0 && own_chunk(lane) < present;
    return lane == 0 ? min(VECTORS, present) : 0;
}

INLINE T add_lanes_shared(T sum, T *scratch, int lane)
{
    __syncwarp();
    scratch[lane] = sum;
    for (int step = LANES / 2; step > 0; step /= 2) {
        __syncwarp();
        if (lane < step) scratch[lane] += scratch[lane + step];
    }
    __syncwarp();
    return scratch[0];
}

template <bool WHOLE> INLINE void measure(const T (&acc)[POINTS], T (&sum)[VECTORS], const Sink &sink, int lane)
{
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const Vector y = load_shared<Vector>(sink.target + j * CHUNK_BYTES);
        const Vector w = WEIGHTED ? load_shared<Vector>(sink.target + TILE_BYTES + j * CHUNK_BYTES) : y;
        sum[j] = T(0);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const bool counts = WEIGHTED ? w.at[k] != T(0) : WHOLE || j * CHUNK + lane * WIDTH + k < sink.left;
            const T error = counts ? acc[j * WIDTH + k] - y.at[k] : T(0);
            const T weighted = WEIGHTED ? w.at[k] * error : error;
            if (TASK == SQUARE) sum[j] = k == 0 ? weighted * error : fma(weighted, error, sum[j]);
            else sum[j] = k == 0 ? fabs(weighted) : sum[j] + fabs(weighted);
        }
    }
}

INLINE void add_up(const Job &job, const T (&acc)[POINTS], int item, const Sink &sink, T *scratch, int lane)
{
    T sum[VECTORS];
    if (sink.left == TILE) measure<true>(acc, sum, sink, lane);
    else measure<false>(acc, sum, sink, lane);
    if (REDUCTION == ATOMIC) {
        double all = 0.0;
        for (int c = 0; c < VECTORS; ++c) all += double(sum[c]);
        atomicAdd(job.sums + item, all);
        return;
    }
    if (REDUCTION == SHARED)
        for (int c = 0; c < VECTORS; ++c) sum[c] = add_lanes_shared(sum[c], scratch, lane);
    else
        add_lanes_shuffle(sum, lane);
    const int n_written = sums_written(lane, (sink.left + CHUNK - 1) / CHUNK);
    if (SCATTERED) {
        if (n_written) *sink.partial = sum[0];
    } else {
#pragma unroll
        for (int c = 0; c < VECTORS; ++c) if (c < n_written) sink.partial[c] = sum[c];
    }
}

// By how many vectors an item's results begin before the tile.
INLINE int early_by(const T *row)
{
    return MARGIN ? int(unsigned(reinterpret_cast<size_t>(row)) / VECTOR_BYTES % (LINE / VECTOR_BYTES)) : 0;
}

INLINE Span span(const Sink &sink, int early, int lane)
{
    const int begin = first_of_lane(lane) - early * WIDTH;
    return Span{sink.is_first ? -begin : 0, sink.left - begin};
}

template <bool WHOLE> INLINE void write(const T (&acc)[POINTS], const Sink &sink, int early, int lane)
{
    const Span present = span(sink, early, lane);
    T *at = sink.row - early * WIDTH + first_of_lane(lane);
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
#pragma unroll
        for (int k = 0; k < WIDTH; k += WIDE ? WIDTH : 1) {
            const int offset = offset_in_lane(j, k);
            if (!WHOLE && !present.has(offset)) continue;
            if (WIDE) {
                Vector v;
#pragma unroll
                for (int i = 0; i < WIDTH; ++i) v.at[i] = acc[j * WIDTH + i];
                __stcs(reinterpret_cast<uint4 *>(at + offset), *reinterpret_cast<uint4 *>(&v));
            } else {
                __stcs(at + offset, acc[j * WIDTH + k]);
            }
        }
    }
}

// The weight of a lane's point in a loss.
INLINE T weight_of(const Sink &sink, int j, int k)
{
    return load_shared<Vector>(sink.target + TILE_BYTES + j * CHUNK_BYTES).at[k];
}

INLINE void count_nonfinite(const Job &job, const T (&acc)[POINTS], int item, const Sink &sink, int early, int lane)
{
    const Span present = span(sink, early, lane);
    unsigned found = 0;  // nan in the low half, inf in the high
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const T a = acc[j * WIDTH + k];
            if (present.has(offset_in_lane(j, k)) && (TASK == VALUES || !WEIGHTED || weight_of(sink, j, k) != T(0)))
                found += a != a ? 1u : fabs(a) > T(LARGEST) ? 1u << 16 : 0u;
        }
    }
    for (int step = LANES / 2; step > 0; step /= 2) found += __shfl_xor_sync(0xffffffffu, found, step);
    if (lane == 0 && found) {
        unsigned long long *count = job.nonfinite + 2 * Long(item);
        if (found & 0xffffu) atomicAdd(count, (unsigned long long)(found & 0xffffu));
        if (found >> 16) atomicAdd(count + 1, (unsigned long long)(found >> 16));
    }
}

// ── the interpreter ──────────────────────────────────────────────────────────────────

// Where a warp finds things; the shared ones without the lane's share.
struct Frame {
    unsigned coming, strip, tile, slots;  // coming: the warp's next run; the one after that takes turns with it
    const T *columns;  // first point of column 0, MARGIN early, without COLUMNS_SHARED
    T *scratch;
};

// A word and its number.  Nothing may be computed of them here: they are on their way, and a warp would wait for them.
INLINE Record fetch(const Job &job, int word)
{
    const Word w = job.words[word % job.n_words];
    return Record{w.action, w.places, job.numbers[word]};
}

// A word for the strip: its column and slot become addresses in units of vectors.
INLINE Record placed(const Frame &frame, const Record &word)
{
    if (!COLUMNS_SHARED) return word;
    const unsigned of_operand = word.action & SLOT ? frame.slots : frame.tile;
    const unsigned operand = (of_operand + (word.places & 0xffffu) * ROW_BYTES) / VECTOR_BYTES;
    const unsigned loaded = (frame.tile + (word.places >> 16) * ROW_BYTES) / VECTOR_BYTES;
    return Record{word.action, loaded << 16 | operand, word.number};
}

INLINE Place find(const Job &job, const Frame &frame, unsigned place, bool slot, unsigned lane_bytes)
{
    if (COLUMNS_SHARED) return Place{place * VECTOR_BYTES + lane_bytes, nullptr, 0};
    const T *columns = frame.columns + place * job.pitch + (lane_bytes / VECTOR_BYTES - threadIdx.x % LANES) * WIDTH;
    return Place{frame.slots + place * ROW_BYTES + lane_bytes, slot ? nullptr : columns, job.pitch};
}

// Where in the row of a column or slot a lane finds its first vector of an item.
INLINE unsigned lane_place(const T *row, int lane) { return (lane + MARGIN - early_by(row)) * VECTOR_BYTES; }

// Run ``run``; ``next`` holds its first words, and then those of the run behind it.
INLINE void execute(const Job &job, const Frame &frame, Sink &sink, const Run &run, Record &next, int lane)
{
    const unsigned strip_end = frame.strip + LANES * sizeof(Record);
    unsigned lane_bytes = lane_place(sink.row, lane);
    int word = run.word + lane, words_left = run.n_words, item = run.item, left = run.n_items;
    unsigned cursor = strip_end;
    T acc[POINTS];
    while (true) {
        if (cursor == strip_end) {
            cursor = frame.strip;
            __syncwarp();
            store_shared(cursor + lane * unsigned(sizeof(Record)), placed(frame, next));
            __syncwarp();
            word += LANES;
            words_left -= LANES;
            if (words_left <= 0) {  // of this run; the next one follows
                end_copies<1>();
                __syncwarp();
                word = load_shared<Run>(frame.coming).word + lane;
            }
            next = fetch(job, word);
        }
        const Record now = load_shared<Record>(cursor);
        cursor += sizeof(Record);
        const unsigned action = now.action;
        if (action & SPILL) {
            if (MARGIN) __syncwarp();  // of the item before, this place may have been another lane's
            spill(acc, frame.slots + (action >> 8 & 0xffu) * ROW_BYTES + lane_bytes);
        }
        if (action & LOAD) with_memory(acc, find(job, frame, now.places >> 16, false, lane_bytes), [](T, T b) { return b; });
        const Place memory = find(job, frame, now.places & 0xffffu, action & SLOT, lane_bytes);
        const T high = now.number.high, a_low = now.number.low;
        const int form = action >> 16;
        if (form < COMMON_CASES) {
            switch (form) {
            //{common cases}
            default: __builtin_unreachable();
            }
        } else {
            switch (form) {
            //{other cases}
            default: __builtin_unreachable();
            }
        }
        if (action & END) {
            if (COUNTED) count_nonfinite(job, acc, item, sink, early_by(sink.row), lane);
            const bool whole = sink.left == TILE && (MARGIN == 0 || !sink.is_first);
            if (TASK == VALUES && whole) write<true>(acc, sink, early_by(sink.row), lane);
            else if (TASK == VALUES) write<false>(acc, sink, early_by(sink.row), lane);
            else add_up(job, acc, item, sink, frame.scratch, lane);
            if (--left == 0) return;
            ++item;
            sink.row += job.n_points;
            sink.partial += job.n_chunks;
            if (MARGIN) lane_bytes = lane_place(sink.row, lane);
        }
    }
}

// Begin to copy the tile of all columns at point ``start``, MARGIN early, into shared memory.
INLINE void load_columns(const Job &job, unsigned tile, Long start)
{
    constexpr int N = ROW_BYTES / VECTOR_BYTES;
    for (int i = threadIdx.x; i < job.n_columns * N; i += BLOCK) {
        const T *column = job.columns + i / N * job.pitch + start - MARGIN * WIDTH;
        if (SPREAD) store_shared(tile + i * VECTOR_BYTES, load_global(column + i % N / LANES * CHUNK, i % N % LANES));
        else begin_copy(tile + i * VECTOR_BYTES, reinterpret_cast<const Vector *>(column + i % N * WIDTH));
    }
}

// The same for one value a point, with zeros behind the last one.
INLINE void load_values(const Job &job, unsigned tile, const T *values, Long start)
{
    for (int i = threadIdx.x; i < TILE / WIDTH; i += BLOCK) {
        Vector v;
        for (int k = 0; k < WIDTH; ++k) {
            const Long point = start + i * WIDTH + k;
            v.at[k] = point < job.n_points ? values[point] : T(0);
        }
        store_shared(tile + i * VECTOR_BYTES, v);
    }
}

// What a block works on; in shared memory, since registers are short.
struct __align__(16) Unit {
    int number, tile;
    int next_run, stop;  // that a warp can take, and the first that is not the slab's
};

// Have run ``r`` of a slab brought to ``to``, by lane 0; one without items from ``stop`` on.
INLINE void bring_run(unsigned to, const Run *runs, int r, int stop)
{
    if (r < stop) begin_copy(to, runs + r);
    else store_shared(to, Run{0, 0, 0, 0});
    group_copies();
}

extern "C" __global__ void __launch_bounds__(BLOCK, MIN_BLOCKS) interpret(const Job job)
{
    extern __shared__ __align__(32) Vector shared[];
    volatile Unit *now = reinterpret_cast<volatile Unit *>(shared);
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int n_rows = COLUMNS_SHARED ? job.n_columns : 0, n_targets = TASK == VALUES ? 0 : 1 + WEIGHTED;
    const unsigned base = shared_address(shared) + (2 + 2 * WARPS) * VECTOR_BYTES, scratches = base + BLOCK * sizeof(Record);
    const unsigned tile = scratches + (REDUCTION == SHARED ? (BLOCK * sizeof(T) + 15) / 16 * 16 : 0);
    const unsigned targets = tile + n_rows * ROW_BYTES, slots = targets + n_targets * TILE_BYTES;
    Frame frame;
    frame.coming = base - (2 + 2 * warp) * VECTOR_BYTES;
    frame.strip = base + warp * LANES * unsigned(sizeof(Record));
    frame.tile = tile;
    frame.slots = slots + warp * job.n_slots * ROW_BYTES;
    frame.scratch = reinterpret_cast<T *>(reinterpret_cast<Record *>(shared + 2 + 2 * WARPS) + BLOCK) + warp * LANES;
    Sink sink;
    sink.target = targets + lane * VECTOR_BYTES;
    let_next_begin();
    for (int unit = blockIdx.x; unit < job.n_units; unit = now->number + gridDim.x) {
        const int slab = unit / job.n_tiles, t = job.first_tile + unit % job.n_tiles;
        const int r = slab * job.n_runs + warp, stop = (slab + 1) * job.n_runs;
        const Long start = Long(t) * TILE;
        __syncthreads();
        if (threadIdx.x == 0) {
            now->number = unit, now->tile = t;
            now->next_run = r + 2 * WARPS, now->stop = stop;
        }
        if (COLUMNS_SHARED) load_columns(job, tile, start);
        Run run = r < stop ? job.runs[r] : Run{0, 0, 0, 0};
        if (lane == 0) bring_run(frame.coming, job.runs, r + WARPS, stop);
        if (unit == blockIdx.x) wait_for_previous();
        Record next = fetch(job, run.word + lane);
        if (n_targets > 0) load_values(job, targets, job.target, start);
        if (n_targets > 1) load_values(job, targets + TILE_BYTES, job.weights, start);
        end_copies<0>();
        __syncthreads();
        frame.columns = job.columns + start - MARGIN * WIDTH;
        sink.left = int(min(job.n_points - start, Long(TILE)));
        sink.is_first = start == 0;
        while (run.n_items > 0) {
            const unsigned other = frame.coming ^ VECTOR_BYTES;
            __syncwarp();
            if (lane == 0) bring_run(other, job.runs, atomicAdd((int *)&now->next_run, 1), now->stop);
            sink.row = job.out + run.item * job.n_points + Long(now->tile) * TILE;
            sink.partial = job.partials + Long(run.item) * job.n_chunks + own_chunk(lane);
            sink.partial += Long(now->tile) * VECTORS - job.first_chunk;
            execute(job, frame, sink, run, next, lane);
            run = load_shared<Run>(frame.coming);
            frame.coming = other;
        }
        end_copies<0>();
    }
}

#endif
