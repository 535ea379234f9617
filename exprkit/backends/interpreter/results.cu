// What becomes of an item's values: a row of the results, or a sum of a loss, and the count of nan and inf.

#if !SUPPORT

// Where a thread's results of the current item go.
struct Sink {
    T *row;             // VALUES: the tile's first point
    T *partial;         // else: the (first) sum that this lane writes
    unsigned target;    // this lane's first target value; one tile on, the weights
    int left;           // points of the data from the tile's first one on, TILE at the most
    bool is_first;      // the tile begins with the first point
};

// Add up over the lanes: lane 0 (or, of VECTORS = 2, 4 and 8, the first lane of each half, quarter or eighth) gets a
// segment's sum.  Lane and partner always add the same two numbers, so the bits don't depend on VECTORS.
INLINE void add_lanes(T (&sum)[VECTORS], int lane)
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

constexpr bool SCATTERED = LANES > 1 && (VECTORS == 2 || VECTORS == 4 || VECTORS == 8);

// Which segment's sum a lane writes first.
INLINE int own_segment(int lane) { return SCATTERED ? lane / (LANES / VECTORS) : 0; }

INLINE int sums_written(int lane, int present)
{
    if (SCATTERED) return lane % (LANES / VECTORS) == 0 && own_segment(lane) < present;
    return lane == 0 ? min(VECTORS, present) : 0;
}

// The sum of an item's segments where one tile has them all: that of add_segments (support.cu), bit by bit, in lane 0.
INLINE double add_all_segments(const T (&sum)[VECTORS])
{
    double total[VECTORS];
    total[0] = double(sum[0]);
    if (SCATTERED) {
#pragma unroll
        for (int step = LANES / 2; step >= LANES / VECTORS; step /= 2) total[0] += __shfl_xor_sync(0xffffffffu, total[0], step);
    } else {
#pragma unroll
        for (int c = 1; c < VECTORS; ++c) total[c] = double(sum[c]);
#pragma unroll
        for (int step = LANES > 1 ? 4 : 0; step > 0; step /= 2) {
#pragma unroll
            for (int c = 0; c < step && c + step < VECTORS; ++c) total[c] += total[c + step];
        }
        for (int c = 1; LANES == 1 && c < VECTORS; ++c) total[0] += total[c];
    }
    return TASK == SUM || TASK == TEXT ? total[0] + 0.0 : total[0];  // which is never -0
}

template <bool WHOLE> INLINE void measure(const T (&acc)[POINTS], T (&sum)[VECTORS], const Sink &sink, int lane)
{
#pragma unroll
    for (int j = 0; j < VECTORS; ++j) {
        const Vector y = load_shared<Vector>(sink.target + j * SEGMENT_BYTES);
        const Vector w = WEIGHTED ? load_shared<Vector>(sink.target + TILE_BYTES + j * SEGMENT_BYTES) : y;
        sum[j] = T(0);
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            const bool counts = WEIGHTED ? w.at[k] != T(0) : WHOLE || j * SEGMENT + lane * WIDTH + k < sink.left;
            const T error = counts ? acc[j * WIDTH + k] - y.at[k] : T(0);
            const T weighted = WEIGHTED ? w.at[k] * error : error;
            if (TASK == SQUARE) sum[j] = k == 0 ? weighted * error : fma(weighted, error, sum[j]);
            else if (TASK == SUM) sum[j] = k == 0 ? weighted : sum[j] + weighted;
            else sum[j] = k == 0 ? fabs(weighted) : sum[j] + fabs(weighted);
        }
    }
}

// A loss of the user's own, added up: of the expression and the numbers at a point; how many vectors at once.
//{loss}

#ifdef HAS_LOSS
// Its sums.  The accumulator, which is not needed any more, goes round, so that long code stands there once.
template <bool WHOLE> INLINE void measure_text(T (&acc)[POINTS], T (&sum)[VECTORS], const Sink &sink, int lane)
{
#pragma unroll AT_ONCE
    for (int j = 0; j < VECTORS; ++j) {
        Vector read[TARGETS];
#pragma unroll
        for (int c = 0; c < TARGETS; ++c) read[c] = load_shared<Vector>(sink.target + c * TILE_BYTES + j * SEGMENT_BYTES);
        T total = T(0), done[WIDTH];
#pragma unroll
        for (int k = 0; k < WIDTH; ++k) {
            T here[TARGETS];
#pragma unroll
            for (int c = 0; c < TARGETS; ++c) here[c] = read[c].at[k];
            const bool counts = WEIGHTED ? here[TARGETS - 1] != T(0) : WHOLE || j * SEGMENT + lane * WIDTH + k < sink.left;
            const T more = k == 0 ? add_text_loss<true>(total, acc[k], here) : add_text_loss<false>(total, acc[k], here);
            total = counts ? more : total;
            done[k] = acc[k];
        }
        shift_in(acc, done);
#pragma unroll
        for (int c = 0; c < VECTORS - 1; ++c) sum[c] = sum[c + 1];
        sum[VECTORS - 1] = total;
    }
}
#endif

INLINE void add_up(const Arguments &args, T (&acc)[POINTS], int item, const Sink &sink, int lane)
{
    T sum[VECTORS];
#ifdef HAS_LOSS
    if (sink.left == TILE) measure_text<true>(acc, sum, sink, lane);
    else measure_text<false>(acc, sum, sink, lane);
#else
    if (sink.left == TILE) measure<true>(acc, sum, sink, lane);
    else measure<false>(acc, sum, sink, lane);
#endif
    add_lanes(sum, lane);
    if (ONE_TILE) {
        const double total = add_all_segments(sum);
        if (lane == 0) args.sums[item] = total;
        return;
    }
    const int n_written = sums_written(lane, (sink.left + SEGMENT - 1) / SEGMENT);
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

// The weight of a lane's point in a loss (but for TEXT).
INLINE T weight_of(const Sink &sink, int j, int k)
{
    return load_shared<Vector>(sink.target + TILE_BYTES + j * SEGMENT_BYTES).at[k];
}

INLINE void count_nonfinite(const Arguments &args, const T (&acc)[POINTS], int item, const Sink &sink, int early, int lane)
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
        unsigned long long *count = args.nonfinite + 2 * Long(item);
        if (found & 0xffffu) atomicAdd(count, (unsigned long long)(found & 0xffffu));
        if (found >> 16) atomicAdd(count + 1, (unsigned long long)(found >> 16));
    }
}

#endif
