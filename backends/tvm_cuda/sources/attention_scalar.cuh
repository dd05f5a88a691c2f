// A warp's work of attention over float32 pools, for which tensor cores have no type: a few query
// heads of one row over a range of its tokens.
#ifndef OPTC_ATTENTION_SCALAR_CUH
#define OPTC_ATTENTION_SCALAR_CUH
namespace optc {

// The queries of a block, and the slopes of their heads.
template <class A> struct ScalarQueries {
  float values[A::VECTORS][A::DK], slope[A::VECTORS];

  // Filled by the whole block; zeros for heads that it lacks.
  __device__ void fetch(const float* q, const float* slopes, const Heads<A>& heads) {
    for (int i = threadIdx.x; i < A::VECTORS * A::DK; i += blockDim.x)
      values[i / A::DK][i % A::DK] = i < heads.count * A::DK ? q[i] : 0.0f;
    if (A::SLOPES && threadIdx.x < A::VECTORS)
      slope[threadIdx.x] = threadIdx.x < heads.count ? slopes[heads.first + threadIdx.x] : 0.0f;
  }
};

// What a warp has of its range; lane l holds values l, l + 32, ….
template <class A> struct ScalarRange {
  static constexpr int PARTS = ceil_div(A::DV, WARP); // values of a lane
  float largest[A::VECTORS], norm[A::VECTORS], total[A::VECTORS][PARTS];

  __device__ void clear() {
#pragma unroll
    for (int v = 0; v < A::VECTORS; ++v) {
      largest[v] = lowest();
      norm[v] = 0.0f;
#pragma unroll
      for (int i = 0; i < PARTS; ++i) total[v][i] = 0.0f;
    }
  }

  __device__ void keep(Result<A>& result) const {
#pragma unroll
    for (int v = 0; v < A::VECTORS; ++v) {
      if (lane() == 0) result.top[v] = largest[v];
      if (lane() == 0) result.norm[v] = norm[v];
#pragma unroll
      for (int i = 0; i < PARTS; ++i)
        if (A::DV % WARP == 0 || i * WARP + lane() < A::DV)
          result.total[v][i * WARP + lane()] = total[v][i];
    }
  }
};

// Dot products of a tile's keys with the queries: lane l and l + 16 have token l's.
template <class A>
__device__ void score(
    float (&scores)[A::VECTORS], const ScalarQueries<A>& q, const float* keys) {
  const int token = lane() % TILE, half = lane() / TILE;
#pragma unroll
  for (int v = 0; v < A::VECTORS; ++v) scores[v] = 0.0f;
#pragma unroll 4
  for (int d = half; d < A::DK; d += 2) {
    const float key = keys[d * TILE + token];
#pragma unroll
    for (int v = 0; v < A::VECTORS; ++v) scores[v] = fmaf(q.values[v][d], key, scores[v]);
  }
#pragma unroll
  for (int v = 0; v < A::VECTORS; ++v)
    scores[v] += __shfl_xor_sync(ALL_LANES, scores[v], TILE);
}

// Turn a tile's dot products into weights [VECTORS][16] in shared memory, and rescale the range.
template <class A>
__device__ void weigh(ScalarRange<A>& range, const ScalarQueries<A>& q,
    const float (&scores)[A::VECTORS], float (*weights)[TILE], int token, const Span& span) {
  const bool seen = span.sees(token);
#pragma unroll
  for (int v = 0; v < A::VECTORS; ++v) {
    const float x = seen
        ? A::power(scores[v], A::SLOPES ? q.slope[v] : 0.0f, span.end - 1 - token)
        : lowest();
    const float top = fmaxf(range.largest[v], ceilf(warp_max<TILE>(x)));
    float weight = 0.0f;
    if (top > lowest()) {
      const float kept =
          range.largest[v] > lowest() ? power_of_two(range.largest[v] - top) : 0.0f;
      weight = seen ? exp2f(x - top) : 0.0f;
      range.norm[v] = fmaf(range.norm[v], kept, warp_sum<TILE>(weight));
#pragma unroll
      for (int i = 0; i < ScalarRange<A>::PARTS; ++i) range.total[v][i] *= kept;
      range.largest[v] = top;
    }
    if (lane() < TILE) weights[v][lane()] = weight;
  }
}

// Add a tile's values; those of tokens that are not seen may be anything.
template <class A>
__device__ void add_values(ScalarRange<A>& range, const float (*weights)[TILE],
    const float* values, int first, const Span& span) {
#pragma unroll
  for (int token = 0; token < TILE; ++token) {
    if (!span.sees(first + token)) continue;
#pragma unroll
    for (int part = 0; part < ScalarRange<A>::PARTS; ++part) {
      const int d = part * WARP + lane();
      if (A::DV % WARP && d >= A::DV) continue;
      const float value = values[token * A::DV + d];
#pragma unroll
      for (int v = 0; v < A::VECTORS; ++v)
        range.total[v][part] = fmaf(weights[v][token], value, range.total[v][part]);
    }
  }
}

// One warp takes the partitions from first to stop; weights are its own.
template <class A>
__device__ void attend_scalar(ScalarRange<A>& range, const ScalarQueries<A>& queries,
    float (*weights)[TILE], const float* k_pool, const float* v_pool, int kv_head, int first,
    int stop, const Span& span, const Pages& pages) {
  using Pool = typename A::Pool;
  range.clear();
  const int end = min(stop * PARTITION, span.end);
  for (int at = max(first * PARTITION, span.low / TILE * TILE); at < end; at += TILE) {
    const int tile = pages.tile(at);
    float scores[A::VECTORS];
    score<A>(scores, queries, k_pool + tile_start<Pool, A::KV_HEADS, A::DK>(tile, kv_head));
    weigh<A>(range, queries, scores, weights, at + lane() % TILE, span);
    __syncwarp();
    const float* values = v_pool + tile_start<Pool, A::KV_HEADS, A::DV>(tile, kv_head);
    add_values<A>(range, weights, values, at, span);
    __syncwarp();
  }
}

} // namespace optc
#endif
