// Attention of sequences with many new rows: a warp takes as many rows of one sequence, with all
// query heads of a KV head, as fill a fragment of 16, over all of their tokens. Ranges and their
// merge are those of attention.cuh, row by row, so that it does not matter which of them runs.
#ifndef OPTC_ATTENTION_TILES_CUH
#define OPTC_ATTENTION_TILES_CUH
namespace optc {

// Rows of a warp.
template <class A> constexpr int ROWS = TILE_VECTORS / A::VECTORS;

// Merge a lane's range of the vectors in row `half` of the fragments, and clear it.
template <class A>
__device__ void merge_tile(TileRange<A>& whole, TileRange<A>& range, int half) {
#pragma unroll
  for (int n = 0; n < OnTensorCores<A>::COLUMNS; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Merged value = {whole.largest[half], 0.0f, whole.total[n][2 * half + i]};
      value.add(range.largest[half], 0.0f, range.total[n][2 * half + i]);
      whole.total[n][2 * half + i] = value.total;
    }
  Merged norm = {whole.largest[half], whole.norm[half], 0.0f};
  norm.add(range.largest[half], range.norm[half], 0.0f);
  whole.largest[half] = norm.top;
  whole.norm[half] = norm.norm;
  range.clear(half);
}

// Rows first .. stop - 1 of sequence b, by one warp.
template <class A, int WINDOW, int GROUP>
__device__ void attend_rows(TileQueries<A>& queries, const float* q,
    const typename A::Pool::Element* k_pool, const typename A::Pool::Element* v_pool, float* out,
    const Step& step, const Heads<A>& heads, int b, int first, int stop) {
  const int length = step.length(GROUP, b), last = step.query_starts[b + 1] - 1;
  __syncwarp(); // the queries before these were read by all lanes
  for (int m = 0; m < TILE_VECTORS; ++m) {
    const int row = first + m / A::VECTORS, head = m % A::VECTORS;
    const bool present = row < stop && head < heads.count && m / A::VECTORS < ROWS<A>;
    queries.fetch(m, q + ((long long)row * A::HEADS + heads.first + head) * A::DK, present);
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
    spans[half] = mine ? span_of<WINDOW>(length, last - row) : Span{0, 0};
  }
  const Span seen = {span_of<WINDOW>(length, last - first).low, length - (last - (stop - 1))};
  const Pages pages = step.pages(GROUP, b);
  TileRange<A> whole, range;
  whole.clear();
  range.clear();
  for (int p = seen.first(); p * PARTITION < seen.end; ++p) {
    attend_partition<A>(
        range, queries, k_pool, v_pool, heads.kv_head, p * PARTITION, spans, seen, pages);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (spans[half].closes(p)) merge_tile<A>(whole, range, half);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (rows[half] < 0) continue;
    const int head = heads.first + (lane() / 4 + 8 * half) % A::VECTORS;
    float* place = out + ((long long)rows[half] * A::HEADS + head) * A::DV + lane() % 4 * 2;
#pragma unroll
    for (int n = 0; n < OnTensorCores<A>::COLUMNS; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        place[n * 8 + i] = whole.total[n][2 * half + i] / whole.norm[half];
  }
}

// Rows of sequences with more than `most` new rows, a run of rows a warp; others are left alone.
// q f32 [T, H*DK] -> out f32 [T, H*DV]; grid (T / (ROWS * WARPS), KV_HEADS * RUNS).
template <class A, int WINDOW, int GROUP, int WARPS>
__device__ void attention_tiles(const float* q, const typename A::Pool::Element* k_pool,
    const typename A::Pool::Element* v_pool, const int* query_starts, const int* kv_lengths,
    const int* block_tables, const int* block_size, float* out, int sequences, int blocks,
    int most) {
  __shared__ __align__(16) TileQueries<A> queries[WARPS];
  const Step step = {query_starts, kv_lengths, block_tables, block_size, sequences, blocks};
  const Heads<A> heads;
  int row = (blockIdx.x * WARPS + warp()) * ROWS<A>;
  const int end = min(row + ROWS<A>, query_starts[sequences]);
  while (row < end) {
    const int b = step.sequence(row);
    const int stop = min(end, query_starts[b + 1]);
    if (step.fresh(b) > most)
      attend_rows<A, WINDOW, GROUP>(
          queries[warp()], q, k_pool, v_pool, out, step, heads, b, row, stop);
    row = stop;
  }
}

} // namespace optc
#endif
