// Attention of sequences with many new rows: a warp takes as many rows of one sequence, with all
// query heads of a KV head, as fill a fragment of 16, over all of their tokens. Ranges and their
// merge are those of attention.cuh, row by row, so that it does not matter which of them runs.
#ifndef OPTC_ATTENTION_TILES_CUH
#define OPTC_ATTENTION_TILES_CUH
namespace optc {

// Rows of a warp.
template <class A> constexpr int ROWS = TILE_VECTORS / A::VECTORS;

// Whether a lane's sums of whole rows lie in the result's memory meanwhile: registers hold those of
// a range and, up to 128 values, of all of them.
template <class A> constexpr bool WIDE = A::DV > 128;

// What a lane has of whole rows, as TileRange has of ranges.
template <class A> struct TileRows {
  float largest[2], norm[2], total[WIDE<A> ? 1 : OnTensorCores<A>::COLUMNS][4];

  __device__ void clear() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      largest[half] = lowest();
      norm[half] = 0.0f;
    }
    if constexpr (!WIDE<A>) {
#pragma unroll
      for (int n = 0; n < OnTensorCores<A>::COLUMNS; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) total[n][i] = 0.0f;
    }
  }

  // Merge the range of the vectors in row `half` of the fragments, and clear it.
  __device__ void merge(TileRange<A>& range, int half, float* place) {
#pragma unroll
    for (int n = 0; n < OnTensorCores<A>::COLUMNS; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum;
        if constexpr (WIDE<A>)
          sum = largest[half] == lowest() ? 0.0f : place[n * 8 + i];
        else
          sum = total[n][2 * half + i];
        Merged value = {largest[half], 0.0f, sum};
        value.add(range.largest[half], 0.0f, range.total[n][2 * half + i]);
        if constexpr (WIDE<A>)
          place[n * 8 + i] = value.total;
        else
          total[n][2 * half + i] = value.total;
      }
    Merged all = {largest[half], norm[half], 0.0f};
    all.add(range.largest[half], range.norm[half], 0.0f);
    largest[half] = all.top;
    norm[half] = all.norm;
    range.clear(half);
  }

  // Write the result of row `half`, of a head.
  __device__ void finish(int half, float* place, const float* sinks, int head) const {
#pragma unroll
    for (int n = 0; n < OnTensorCores<A>::COLUMNS; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        Merged value = {largest[half], norm[half], 0.0f};
        if constexpr (WIDE<A>)
          value.total = place[n * 8 + i];
        else
          value.total = total[n][2 * half + i];
        value.add_sink<A>(sinks, head);
        place[n * 8 + i] = value.value();
      }
  }
};

// The head of row `half` of this lane's fragments.
template <class A> __device__ __forceinline__ int head_of(const Heads<A>& heads, int half) {
  return heads.first + (lane() / 4 + 8 * half) % A::VECTORS;
}

// Where this lane's values of a row go, of row `half` of the fragments.
template <class A>
__device__ __forceinline__ float* place_of(
    float* out, const Heads<A>& heads, int row, int half) {
  const int head = head_of(heads, half);
  return out + ((long long)row * A::HEADS + head) * A::DV + lane() % 4 * 2;
}

// Rows first .. stop - 1 of sequence b, by one warp.
template <class A, int GROUP>
__device__ void attend_rows(TileQueries<A>& queries, const float* q,
    const typename A::Pool::Element* k_pool, const typename A::Pool::Element* v_pool,
    const float* sinks, const float* slopes, float* out, const Step& step, const Heads<A>& heads,
    int b, int first, int stop) {
  const int length = step.length(GROUP, b), last = step.query_starts[b + 1] - 1;
  __syncwarp(); // the queries before these were read by all lanes
  for (int m = 0; m < TILE_VECTORS; ++m) {
    const int row = first + m / A::VECTORS, head = m % A::VECTORS;
    const bool present = row < stop && head < heads.count && m / A::VECTORS < ROWS<A>;
    const float* vector = q + ((long long)row * A::HEADS + heads.first + head) * A::DK;
    queries.fetch(m, vector, slopes, heads.first + head, present);
  }
  __syncwarp();
  int rows[2];
  Span spans[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int m = lane() / 4 + 8 * half;
    const int row = first + m / A::VECTORS;
    const bool mine = m / A::VECTORS < ROWS<A> && row < stop &&
        m % A::VECTORS < heads.count;
    rows[half] = mine ? row : -1;
    spans[half] = mine ? span_of<A>(length, last - row) : Span{0, 0};
  }
  const Span seen = {span_of<A>(length, last - first).low, length - (last - (stop - 1))};
  const Pages pages = step.pages(GROUP, b);
  TileRows<A> whole;
  TileRange<A> range;
  whole.clear();
  range.clear();
  for (int p = seen.first(); p * PARTITION < seen.end; ++p) {
    attend_partition<A, A::DK + A::DV <= 128>(
        range, queries, k_pool, v_pool, heads.kv_head, p * PARTITION, spans, seen, pages);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (spans[half].closes(p)) whole.merge(range, half, place_of<A>(out, heads, rows[half], half));
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (rows[half] >= 0)
      whole.finish(half, place_of<A>(out, heads, rows[half], half), sinks, head_of(heads, half));
}

// Rows of sequences with more than `most` new rows, a run of rows a warp; others are left alone.
// q f32 [T, H*DK] -> out f32 [T, H*DV]; grid (T / (ROWS * WARPS), KV_HEADS * RUNS).
template <class A, int GROUP, int WARPS>
__device__ void attention_tiles(const float* q, const typename A::Pool::Element* k_pool,
    const typename A::Pool::Element* v_pool, const int* query_starts, const int* kv_lengths,
    const int* block_tables, const int* block_size, const float* sinks, const float* slopes,
    float* out, int sequences, int blocks, int most) {
  __shared__ __align__(16) TileQueries<A> queries[WARPS];
  const Step step = {query_starts, kv_lengths, block_tables, block_size, sequences, blocks};
  const Heads<A> heads;
  int row = (blockIdx.x * WARPS + warp()) * ROWS<A>;
  const int end = min(row + ROWS<A>, query_starts[sequences]);
  while (row < end) {
    const int b = step.sequence(row);
    const int stop = min(end, query_starts[b + 1]);
    if (step.fresh(b) > most)
      attend_rows<A, GROUP>(
          queries[warp()], q, k_pool, v_pool, sinks, slopes, out, step, heads, b, row, stop);
    row = stop;
  }
}

} // namespace optc
#endif
