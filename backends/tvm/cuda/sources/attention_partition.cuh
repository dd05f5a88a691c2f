// A warp's work of paged attention: a few query heads of one row over a partition of its tokens.
#ifndef OPTC_ATTENTION_PARTITION_CUH
#define OPTC_ATTENTION_PARTITION_CUH
namespace optc {

constexpr int PARTITION = 64; // tokens

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

} // namespace optc
#endif
