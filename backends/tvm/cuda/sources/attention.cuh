// Paged attention over ragged rows: prefill, decode and verification of drafts.
//
// The tokens that a row sees are cut into partitions at fixed absolute positions; a warp takes a
// partition with an online softmax (Dao et al., 2022). The partitions form up to RANGES ranges, which
// one block of threads computes one after the other, or as many blocks at once (Flash-Decoding: Dao
// et al., 2023). Results are merged in order, within ranges and then over ranges, and all places
// follow from the row alone, so that a row's bits depend on its query and its K and V. Weights are
// powers of two relative to an integer, so that rescaling is exact. A block computes a run of query
// heads that share a KV head.
#ifndef OPTC_ATTENTION_CUH
#define OPTC_ATTENTION_CUH
namespace optc {

constexpr int RANGES = 8;       // of a row
constexpr int LEAST_RANGE = 8;  // partitions: whole rounds of a block's warps

// The running result of a block, of which each thread holds some values.
template <class A> struct Running {
  static constexpr int THREADS = A::WARPS * WARP;
  static constexpr int MINE = ceil_div(A::VECTORS * A::DV, THREADS);
  float largest[MINE], norm[MINE], total[MINE];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < MINE; ++i) {
      largest[i] = lowest();
      norm[i] = total[i] = 0.0f;
    }
  }

  // Merge one warp's partition into the values of this thread.
  __device__ void merge(int i, float top, float weight, float value) {
    if (top == lowest()) return;
    const float larger = fmaxf(largest[i], top);
    const float kept = largest[i] == lowest() ? 0.0f : power_of_two(largest[i] - larger);
    const float added = power_of_two(top - larger);
    norm[i] = fmaf(norm[i], kept, weight * added);
    total[i] = fmaf(total[i], kept, value * added);
    largest[i] = larger;
  }
};

// What a block computes: VECTORS query heads of a row.
template <class A> struct Block {
  int row, kv_head, first_head, vectors;

  __device__ Block() : row(blockIdx.x), kv_head(blockIdx.y / A::RUNS) {
    const int skipped = blockIdx.y % A::RUNS * A::VECTORS;
    first_head = kv_head * A::SHARED + skipped;
    vectors = min(A::VECTORS, A::SHARED - skipped);
  }
};

// Partitions of a row's range: size whole rounds, from the row's first partition on.
__device__ __forceinline__ int range_size(const Seen& seen) {
  const int count = ceil_div(seen.end, PARTITION) - seen.low / PARTITION;
  return round_up(max(1, ceil_div(count, RANGES)), LEAST_RANGE);
}

// The queries of a block in shared memory, zeros for heads that it lacks.
template <class A>
__device__ void fetch_queries(float (*queries)[A::DK], const float* q, const Block<A>& block) {
  const float* source = q + ((long long)block.row * A::HEADS + block.first_head) * A::DK;
  for (int i = threadIdx.x; i < A::VECTORS * A::DK; i += blockDim.x) {
    const float value = i < block.vectors * A::DK ? source[i] : 0.0f;
    queries[i / A::DK][i % A::DK] = A::Pool::NARROW ? bf16_float(bf16_bits(value)) : value;
  }
  __syncthreads();
}

// All of a block's warps take a range of partitions, in rounds.
template <class A>
__device__ void attend_range(Running<A>& running, const float (*queries)[A::DK],
    const typename A::Pool::Element* k_pool, const typename A::Pool::Element* v_pool, int kv_head,
    int begin, int stop, const Seen& seen) {
  __shared__ float weights[A::WARPS][A::VECTORS][TILE];
  __shared__ float tops[A::WARPS][A::VECTORS], norms[A::WARPS][A::VECTORS];
  __shared__ float totals[A::WARPS][A::VECTORS][A::DV];
  running.clear();
  for (int round = begin; round < stop && round * PARTITION < seen.end; round += A::WARPS) {
    Partial<A> partial;
    attend_partition<A>(partial, queries, weights[warp()], k_pool, v_pool, kv_head,
        (round + warp()) * PARTITION, seen);
#pragma unroll
    for (int v = 0; v < A::VECTORS; ++v) {
      if (lane() == 0) tops[warp()][v] = partial.largest[v];
      if (lane() == 0) norms[warp()][v] = partial.norm[v];
#pragma unroll
      for (int i = 0; i < A::PARTS; ++i)
        if (A::DV % WARP == 0 || i * WARP + lane() < A::DV)
          totals[warp()][v][i * WARP + lane()] = partial.total[v][i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Running<A>::MINE; ++i) {
      const int value = i * blockDim.x + threadIdx.x, v = value / A::DV;
      if (v >= A::VECTORS) continue;
      for (int w = 0; w < A::WARPS; ++w)
        running.merge(i, tops[w][v], norms[w][v], totals[w][v][value % A::DV]);
    }
    __syncthreads();
  }
}

// Whole rows. q f32 [T, H*DK] -> out f32 [T, H*DV]; grid (T, KV_HEADS * RUNS).
template <class A, int WINDOW, int GROUP>
__device__ void paged_attention(const float* q, const typename A::Pool::Element* k_pool,
    const typename A::Pool::Element* v_pool, const int* query_starts, const int* kv_lengths,
    const int* block_tables, const int* block_size, float* out, int sequences, int blocks) {
  __shared__ float queries[A::VECTORS][A::DK];
  const Block<A> block;
  float* results = out + ((long long)block.row * A::HEADS + block.first_head) * A::DV;
  Seen seen;
  if (!find_row<WINDOW, GROUP>(seen, block.row, query_starts, kv_lengths, block_tables, block_size,
          sequences, blocks)) {
    for (int i = threadIdx.x; i < block.vectors * A::DV; i += blockDim.x) results[i] = 0.0f;
    return;
  }
  fetch_queries<A>(queries, q, block);
  Running<A> whole, range;
  whole.clear();
  const int size = range_size(seen);
  for (int begin = seen.low / PARTITION; begin * PARTITION < seen.end; begin += size) {
    attend_range<A>(
        range, queries, k_pool, v_pool, block.kv_head, begin, begin + size, seen);
#pragma unroll
    for (int i = 0; i < Running<A>::MINE; ++i)
      whole.merge(i, range.largest[i], range.norm[i], range.total[i]);
  }
#pragma unroll
  for (int i = 0; i < Running<A>::MINE; ++i) {
    const int value = i * blockDim.x + threadIdx.x;
    if (value < block.vectors * A::DV) results[value] = whole.total[i] / whole.norm[i];
  }
}

// Where a range of a head leaves its result: its values, their largest exponent and the norm.
template <class A>
__device__ __forceinline__ float* range_result(float* ranges, int row, int head, int range) {
  return ranges + (((long long)row * A::HEADS + head) * RANGES + range) * (A::DV + 2);
}

// One range a block. ranges f32 [T, H, RANGES, DV + 2]; grid (T, KV_HEADS * RUNS, RANGES).
template <class A, int WINDOW, int GROUP>
__device__ void attention_range(const float* q, const typename A::Pool::Element* k_pool,
    const typename A::Pool::Element* v_pool, const int* query_starts, const int* kv_lengths,
    const int* block_tables, const int* block_size, float* ranges, int sequences, int blocks) {
  __shared__ float queries[A::VECTORS][A::DK];
  const Block<A> block;
  Seen seen;
  Running<A> running;
  running.clear();
  if (find_row<WINDOW, GROUP>(seen, block.row, query_starts, kv_lengths, block_tables, block_size,
          sequences, blocks)) {
    const int size = range_size(seen), begin = seen.low / PARTITION + blockIdx.z * size;
    if (begin * PARTITION < seen.end) {
      fetch_queries<A>(queries, q, block);
      attend_range<A>(
          running, queries, k_pool, v_pool, block.kv_head, begin, begin + size, seen);
    }
  }
#pragma unroll
  for (int i = 0; i < Running<A>::MINE; ++i) {
    const int value = i * blockDim.x + threadIdx.x, v = value / A::DV, d = value % A::DV;
    if (v >= block.vectors) continue;
    float* result = range_result<A>(ranges, block.row, block.first_head + v, blockIdx.z);
    result[d] = running.total[i];
    if (d == 0) result[A::DV] = running.largest[i];
    if (d == 0) result[A::DV + 1] = running.norm[i];
  }
}

// Merge the ranges of a head, a thread a value; rows of no sequence become zero. Grid (T, HEADS).
template <class A> __device__ void merge_ranges(float* ranges, float* out) {
  const int row = blockIdx.x, head = blockIdx.y;
  for (int d = threadIdx.x; d < A::DV; d += blockDim.x) {
    Running<A> whole;
    whole.clear();
    for (int range = 0; range < RANGES; ++range) {
      const float* result = range_result<A>(ranges, row, head, range);
      whole.merge(0, result[A::DV], result[A::DV + 1], result[d]);
    }
    out[((long long)row * A::HEADS + head) * A::DV + d] =
        whole.largest[0] == lowest() ? 0.0f : whole.total[0] / whole.norm[0];
  }
}

} // namespace optc
#endif
