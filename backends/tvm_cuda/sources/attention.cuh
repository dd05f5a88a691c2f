// Paged attention, a block of threads for each row and run of query heads that share a KV head: its
// warps take the row's ranges. Where rows are few, several blocks share a row (Flash-Decoding: Dao
// et al., 2023).
#ifndef OPTC_ATTENTION_CUH
#define OPTC_ATTENTION_CUH
namespace optc {

// How one warp computes ranges of a row, by the type of the pools.
template <class A, class Element> struct RowWarps {
  TileQueries<A> queries;

  __device__ void fetch(const float* q, const float* slopes, const Heads<A>& heads) {
    for (int m = warp(); m < TILE_VECTORS; m += A::WARPS)
      queries.fetch(m, q + m * A::DK, slopes, heads.first + m, m < heads.count);
  }
  __device__ void attend(Result<A>& result, const Element* k_pool, const Element* v_pool,
      int kv_head, int first, int stop, const Span& span, const Pages& pages) {
    TileRange<A> range;
    range.clear();
    const Span nothing = {0, 0};
    const Span spans[2] = {lane() / 4 < A::VECTORS ? span : nothing,
        lane() / 4 + 8 < A::VECTORS ? span : nothing};
    for (int p = first; p < stop && p * PARTITION < span.end; ++p)
      attend_partition<A, false>( // registers for more rows at once are worth more here
          range, queries, k_pool, v_pool, kv_head, p * PARTITION, spans, span, pages);
    range.keep(result);
  }
};

template <class A> struct RowWarps<A, float> {
  ScalarQueries<A> queries;
  float weights[A::WARPS][A::VECTORS][TILE];

  __device__ void fetch(const float* q, const float* slopes, const Heads<A>& heads) {
    queries.fetch(q, slopes, heads);
  }
  __device__ void attend(Result<A>& result, const float* k_pool, const float* v_pool, int kv_head,
      int first, int stop, const Span& span, const Pages& pages) {
    ScalarRange<A> range;
    attend_scalar<A>(range, queries, weights[warp()], k_pool, v_pool, kv_head, first, stop, span,
        pages);
    range.keep(result);
  }
};

template <class A>
__device__ __forceinline__ const float* queries_of(const float* q, int row, const Heads<A>& heads) {
  return q + ((long long)row * A::HEADS + heads.first) * A::DK;
}

// Rows of sequences with at most `most` new rows; rows of no sequence become zero.
// q f32 [T, H*DK] -> out f32 [T, H*DV]; grid (T, KV_HEADS * RUNS).
template <class A, int GROUP>
__device__ void attention_rows(const float* q, const typename A::Pool::Element* k_pool,
    const typename A::Pool::Element* v_pool, const int* query_starts, const int* kv_lengths,
    const int* block_tables, const int* block_size, const float* sinks, const float* slopes,
    float* out, int sequences, int blocks, int most) {
  __shared__ __align__(16) RowWarps<A, typename A::Pool::Element> warps;
  __shared__ Result<A> results[A::WARPS];
  constexpr int THREADS = A::WARPS * WARP, MINE = ceil_div(A::VECTORS * A::DV, THREADS);
  const Step step = {query_starts, kv_lengths, block_tables, block_size, sequences, blocks};
  const Heads<A> heads;
  const int row = blockIdx.x, b = step.sequence(row);
  if (b >= 0 && step.fresh(b) > most) return;
  Merged merged[MINE];
#pragma unroll
  for (int i = 0; i < MINE; ++i) merged[i].clear();
  if (b >= 0) {
    const Span span = span_of<A>(step.length(GROUP, b), query_starts[b + 1] - 1 - row);
    const Pages pages = step.pages(GROUP, b);
    const int size = span.size(), ranges = ceil_div(span.count(), size);
    warps.fetch(queries_of(q, row, heads), slopes, heads);
    __syncthreads();
    for (int first = 0; first < ranges; first += A::WARPS) {
      const int begin = span.first() + (first + warp()) * size;
      warps.attend(
          results[warp()], k_pool, v_pool, heads.kv_head, begin, begin + size, span, pages);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < MINE; ++i) {
        const int value = i * THREADS + threadIdx.x, v = value / A::DV;
        if (v >= A::VECTORS) continue;
        for (int w = 0; w < A::WARPS; ++w)
          merged[i].add(results[w].top[v], results[w].norm[v], results[w].total[v][value % A::DV]);
      }
      __syncthreads();
    }
  }
  float* place = out + ((long long)row * A::HEADS + heads.first) * A::DV;
#pragma unroll
  for (int i = 0; i < MINE; ++i) {
    const int value = i * THREADS + threadIdx.x;
    if (value >= heads.count * A::DV) continue;
    merged[i].template add_sink<A>(sinks, heads.first + value / A::DV);
    place[value] = merged[i].value();
  }
}

// Where a range of a head leaves its result: its values, their largest exponent and the norm.
template <class A>
__device__ __forceinline__ float* range_result(float* ranges, int row, int head, int range) {
  return ranges + (((long long)row * A::HEADS + head) * RANGES + range) * (A::DV + 2);
}

// One range a warp. ranges f32 [T, H, RANGES, DV + 2]; grid (T, KV_HEADS * RUNS, RANGES / WARPS).
template <class A, int GROUP>
__device__ void attention_ranges(const float* q, const typename A::Pool::Element* k_pool,
    const typename A::Pool::Element* v_pool, const int* query_starts, const int* kv_lengths,
    const int* block_tables, const int* block_size, const float* slopes, float* ranges,
    int sequences, int blocks) {
  __shared__ __align__(16) RowWarps<A, typename A::Pool::Element> warps;
  __shared__ Result<A> results[A::WARPS];
  const Step step = {query_starts, kv_lengths, block_tables, block_size, sequences, blocks};
  const Heads<A> heads;
  const int row = blockIdx.x, b = step.sequence(row), range = blockIdx.z * A::WARPS + warp();
  Result<A>& result = results[warp()];
  for (int v = lane(); v < A::VECTORS; v += WARP) result.top[v] = lowest();
  if (b >= 0) {
    const Span span = span_of<A>(step.length(GROUP, b), query_starts[b + 1] - 1 - row);
    const int begin = span.first() + range * span.size();
    warps.fetch(queries_of(q, row, heads), slopes, heads);
    __syncthreads();
    if (begin * PARTITION < span.end)
      warps.attend(result, k_pool, v_pool, heads.kv_head, begin, begin + span.size(), span,
          step.pages(GROUP, b));
  }
  __syncwarp();
  for (int v = 0; v < heads.count; ++v) {
    float* place = range_result<A>(ranges, row, heads.first + v, range);
    if (lane() == 0) place[A::DV] = result.top[v];
    if (result.top[v] == lowest()) continue;
    if (lane() == 0) place[A::DV + 1] = result.norm[v];
    for (int d = lane(); d < A::DV; d += WARP) place[d] = result.total[v][d];
  }
}

// Merge the ranges of a head, a thread a value; rows of no sequence become zero. Several are read
// before the first of them is added; what those without tokens hold is not looked at. Grid (T,
// HEADS).
template <class A>
__device__ void merge_ranges(float* ranges, const float* sinks, float* out) {
  constexpr int AHEAD = 16;
  const int row = blockIdx.x, head = blockIdx.y;
  for (int d = threadIdx.x; d < A::DV; d += blockDim.x) {
    Merged merged;
    merged.clear();
    for (int first = 0; first < RANGES; first += AHEAD) {
      Merged read[AHEAD];
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        const float* result = range_result<A>(ranges, row, head, first + i);
        read[i] = {result[A::DV], result[A::DV + 1], result[d]};
      }
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) merged.add(read[i].top, read[i].norm, read[i].total);
    }
    merged.template add_sink<A>(sinks, head);
    out[((long long)row * A::HEADS + head) * A::DV + d] = merged.value();
  }
}

} // namespace optc
#endif
