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

constexpr int PARTITION = 64;   // tokens
constexpr int RANGES = 8;       // of a row
constexpr int LEAST_RANGE = 8;  // partitions: whole rounds of a block's warps

__device__ __forceinline__ float lowest() { return __uint_as_float(0xff800000u); }

// 2 ** n of an integer n <= 0; zero below the least normal number.
__device__ __forceinline__ float power_of_two(float n) {
  return n < -126.0f ? 0.0f : __uint_as_float((unsigned)((int)n + 127) << 23);
}

// Where a row's tokens lie.
struct Seen {
  const int* table;    // blocks of its sequence
  int low, end;        // tokens low .. end - 1 are seen
  int block_size;

  __device__ int tile(int token) const {
    return table[token / block_size] * (block_size / TILE) + token % block_size / TILE;
  }
  __device__ bool sees(int token) const { return token >= low && token < end; }
};

// Fills seen for a row; false if it belongs to no sequence.
template <int WINDOW, int GROUP>
__device__ bool find_row(Seen& seen, int row, const int* query_starts, const int* kv_lengths,
    const int* block_tables, const int* block_size, int sequences, int blocks) {
  __shared__ int found;
  if (threadIdx.x == 0) found = -1;
  __syncthreads();
  for (int b = threadIdx.x; b < sequences; b += blockDim.x)
    if (query_starts[b] <= row && row < query_starts[b + 1]) found = b;
  __syncthreads();
  if (found < 0) return false;
  const int later = query_starts[found + 1] - 1 - row;
  seen.end = kv_lengths[GROUP * sequences + found] - later;
  seen.low = WINDOW && seen.end > WINDOW ? seen.end - WINDOW : 0;
  seen.table = block_tables + ((long long)GROUP * sequences + found) * blocks;
  seen.block_size = block_size[0];
  return true;
}

// A configuration of the kernel. VECTORS query heads are computed together.
template <class Pool_, int HEADS_, int KV_HEADS_, int DK_, int DV_, unsigned SCALE_,
    unsigned SOFTCAP_, int VECTORS_>
struct Attention {
  using Pool = Pool_;
  static constexpr int HEADS = HEADS_, KV_HEADS = KV_HEADS_, DK = DK_, DV = DV_;
  static constexpr int VECTORS = VECTORS_, PACK = Pool::PACK;
  static constexpr unsigned SCALE = SCALE_, SOFTCAP = SOFTCAP_;
  static constexpr int SHARED = HEADS / KV_HEADS;        // query heads of a KV head
  static constexpr int RUNS = ceil_div(SHARED, VECTORS); // of which a block computes one
  static constexpr int PARTS = ceil_div(DV, WARP);       // values of a lane
  static constexpr int WARPS = DV * VECTORS > 1024 ? 4 : 8;
};

// What a warp has of its partition; lane l holds values l, l + 32, ….
template <class A> struct Partial {
  float largest[A::VECTORS], norm[A::VECTORS], total[A::VECTORS][A::PARTS];

  __device__ void clear() {
#pragma unroll
    for (int v = 0; v < A::VECTORS; ++v) {
      largest[v] = lowest();
      norm[v] = 0.0f;
#pragma unroll
      for (int i = 0; i < A::PARTS; ++i) total[v][i] = 0.0f;
    }
  }
};

// Dot products of a tile's keys with the queries: lane l and l + 16 have token l's.
template <class A>
__device__ void score(float (&scores)[A::VECTORS], const float (*q)[A::DK],
    const typename A::Pool::Element* tile) {
  const unsigned* words = reinterpret_cast<const unsigned*>(tile);
  const int token = lane() % TILE, half = lane() / TILE;
#pragma unroll
  for (int v = 0; v < A::VECTORS; ++v) scores[v] = 0.0f;
#pragma unroll 4
  for (int w = half; w < A::DK / A::PACK; w += 2) {
    const unsigned word = words[w * TILE + token];
#pragma unroll
    for (int i = 0; i < A::PACK; ++i) {
      const float key = A::Pool::decode(word, i);
#pragma unroll
      for (int v = 0; v < A::VECTORS; ++v)
        scores[v] = fmaf(q[v][w * A::PACK + i], key, scores[v]);
    }
  }
#pragma unroll
  for (int v = 0; v < A::VECTORS; ++v)
    scores[v] += __shfl_xor_sync(ALL_LANES, scores[v], TILE);
}

__device__ __forceinline__ float tile_max(float value) {
#pragma unroll
  for (int mask = TILE / 2; mask; mask /= 2)
    value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, mask));
  return value;
}

__device__ __forceinline__ float tile_sum(float value) {
#pragma unroll
  for (int mask = TILE / 2; mask; mask /= 2) value += __shfl_xor_sync(ALL_LANES, value, mask);
  return value;
}

// Turn a tile's dot products into weights [VECTORS][16] in shared memory, and rescale the partial.
template <class A>
__device__ void weigh(Partial<A>& partial, float (&scores)[A::VECTORS], float (*weights)[TILE],
    bool seen, float key_scale, float value_scale) {
  const float cap = bits_float(A::SOFTCAP), log2_e = 1.4426950408889634f;
#pragma unroll
  for (int v = 0; v < A::VECTORS; ++v) {
    float x = scores[v] * key_scale * bits_float(A::SCALE);
    if (A::SOFTCAP) x = cap * tanhf(x / cap);
    x = seen ? x * log2_e : lowest();
    const float top = fmaxf(partial.largest[v], ceilf(tile_max(x)));
    if (top > lowest()) {
      const float kept = partial.largest[v] > lowest() ?
          power_of_two(partial.largest[v] - top) : 0.0f;
      float weight = seen ? exp2f(x - top) : 0.0f;
      if (A::Pool::NARROW) weight = bf16_float(bf16_bits(weight));
      partial.norm[v] = fmaf(partial.norm[v], kept, tile_sum(weight));
#pragma unroll
      for (int i = 0; i < A::PARTS; ++i) partial.total[v][i] *= kept;
      partial.largest[v] = top;
      x = seen ? weight * value_scale : 0.0f;
    } else {
      x = 0.0f;
    }
    if (lane() < TILE) weights[v][lane()] = x;
  }
}

// Add a tile's values; those of tokens that are not seen may be anything.
template <class A>
__device__ void add_values(Partial<A>& partial, const float (*weights)[TILE],
    const typename A::Pool::Element* tile, int first, const Seen& seen) {
  const unsigned* words = reinterpret_cast<const unsigned*>(tile);
#pragma unroll
  for (int w = 0; w < TILE / A::PACK; ++w) {
#pragma unroll
    for (int part = 0; part < A::PARTS; ++part) {
      const int d = part * WARP + lane();
      if (A::DV % WARP && d >= A::DV) continue;
      const unsigned word = words[w * A::DV + d];
#pragma unroll
      for (int i = 0; i < A::PACK; ++i) {
        const int token = w * A::PACK + i;
        const float value = seen.sees(first + token) ? A::Pool::decode(word, i) : 0.0f;
#pragma unroll
        for (int v = 0; v < A::VECTORS; ++v)
          partial.total[v][part] = fmaf(weights[v][token], value, partial.total[v][part]);
      }
    }
  }
}

// One warp takes the tokens of a partition that the row sees.
template <class A>
__device__ void attend_partition(Partial<A>& partial, const float (*q)[A::DK],
    float (*weights)[TILE], const typename A::Pool::Element* k_pool,
    const typename A::Pool::Element* v_pool, int kv_head, int start, const Seen& seen) {
  using Pool = typename A::Pool;
  partial.clear();
  const int stop = min(start + PARTITION, seen.end);
  for (int first = max(start, seen.low / TILE * TILE); first < stop; first += TILE) {
    const int tile = seen.tile(first), token = lane() % TILE;
    const auto* keys = k_pool + tile_start<Pool, A::KV_HEADS, A::DK>(tile, kv_head);
    const auto* values = v_pool + tile_start<Pool, A::KV_HEADS, A::DV>(tile, kv_head);
    const float key_scale = Pool::SCALED ? tile_scales<A::DK>(keys)[token] : 1.0f;
    const float value_scale = Pool::SCALED ? tile_scales<A::DV>(values)[token] : 1.0f;
    float scores[A::VECTORS];
    score<A>(scores, q, keys);
    weigh<A>(partial, scores, weights, seen.sees(first + token), key_scale, value_scale);
    __syncwarp();
    add_values<A>(partial, weights, values, first, seen);
    __syncwarp();
  }
}

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
