// A warp's work of attention on the tensor cores: up to 16 query vectors over partitions of their
// tokens. Pools are laid out as fragments are: a lane reads its words of keys and values from them
// and multiplies, without shared memory between.
//
// bfloat16 pools: queries and weights are rounded to bfloat16. int8 pools: the codes are small
// integers, exact in bfloat16; queries are such codes, too (QUERY_BITS 8), or two bfloat16 numbers
// whose sum has 16 bits, as weights times their tokens' scales are. Sums are float32.
//
// Of a tile of 16 tokens, lane l has the tokens 4*(l%4) .. + 3, of steps of 16 along a key's
// elements likewise: for each this is two words of bfloat16, or one of int8.
#ifndef OPTC_ATTENTION_MMA_CUH
#define OPTC_ATTENTION_MMA_CUH
namespace optc {

constexpr int TILE_VECTORS = 16;              // rows of a fragment
constexpr int TILES = PARTITION / TILE;       // of a partition

template <class A> struct OnTensorCores {
  static constexpr bool SCALED = A::Pool::SCALED;
  static constexpr int QUERY_TERMS = SCALED && A::QUERY_BITS != 8 ? 2 : 1;
  static constexpr int WEIGHT_TERMS = SCALED ? 2 : 1;
  static constexpr int STEPS = ceil_div(A::DK, 16);  // of a dot product
  static constexpr int STRIDE = STEPS * 8 + 8;       // words of a query; lanes meet other banks
  static constexpr int COLUMNS = A::DV / 8;          // fragments of values
};

// Numbers as words of bfloat16, of which the further ones hold what the first could not.
template <int TERMS>
__device__ __forceinline__ void split_pair(unsigned (&words)[TERMS], float low, float high) {
#pragma unroll
  for (int i = 0; i < TERMS; ++i) {
    words[i] = bf16_pair(low, high);
    low -= bf16_float(words[i] & 0xffffu);
    high -= bf16_float(words[i] >> 16);
  }
}

// 16 query vectors in shared memory, and the factor and the slope of each.
template <class A> struct TileQueries {
  using T = OnTensorCores<A>;
  unsigned words[T::QUERY_TERMS][TILE_VECTORS][T::STRIDE];
  float scale[TILE_VECTORS], slope[TILE_VECTORS];

  // Vector m of a head, by all lanes of a warp; zeros if there is none.
  __device__ void fetch(int m, const float* q, const float* slopes, int head, bool present) {
    constexpr int COUNT = ceil_div(T::STEPS * 8, WARP);
    float pairs[COUNT][2], factor = 1.0f;
#pragma unroll
    for (int n = 0; n < COUNT; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int d = 2 * (n * WARP + lane()) + i;
        pairs[n][i] = present && d < A::DK ? q[d] : 0.0f;
      }
    if (A::QUERY_BITS == 8) {
      float top = 0.0f;
#pragma unroll
      for (int n = 0; n < COUNT; ++n)
        top = fmaxf(top, fmaxf(fabsf(pairs[n][0]), fabsf(pairs[n][1])));
      top = warp_max(top);
      factor = top > 0.0f ? top / 127.0f : 1.0f;
#pragma unroll
      for (int n = 0; n < COUNT; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) pairs[n][i] = (float)__float2int_rn(pairs[n][i] / factor);
    }
    if (lane() == 0) scale[m] = factor;
    if (A::SLOPES && lane() == 0) slope[m] = present ? slopes[head] : 0.0f;
#pragma unroll
    for (int n = 0; n < COUNT; ++n) {
      const int w = n * WARP + lane();
      unsigned terms[T::QUERY_TERMS];
      split_pair(terms, pairs[n][0], pairs[n][1]);
      if (w >= T::STEPS * 8) continue;
#pragma unroll
      for (int i = 0; i < T::QUERY_TERMS; ++i) words[i][m][w] = terms[i];
    }
  }

  // This lane's part of a step of 16 elements.
  __device__ void fragment(unsigned (&a)[4], int term, int step) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned* row = words[term][lane() / 4 + 8 * half] + step * 8;
      const uint2 pair = *reinterpret_cast<const uint2*>(row + lane() % 4 * 2);
      a[half] = pair.x;
      a[half + 2] = pair.y;
    }
  }
};

// Four codes of int8 in a word, as two words of bfloat16. Their floats are exact, and end in zeros.
__device__ __forceinline__ void code_words(unsigned (&b)[2], unsigned word) {
  unsigned bits[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float shifted = __uint_as_float(0x4b000000u | ((word >> (8 * i)) & 255u)); // 2^23 + code
    bits[i] = __float_as_uint(shifted - 8388736.0f);
  }
  b[0] = (bits[0] >> 16) | (bits[1] & 0xffff0000u);
  b[1] = (bits[2] >> 16) | (bits[3] & 0xffff0000u);
}

// Four neighbouring elements of a line of a tile, `width` words to the next of a pool's words.
template <class Pool>
__device__ __forceinline__ void read_four(
    unsigned (&b)[2], const unsigned* words, int four, int width) {
  if (Pool::PACK == 4) {
    code_words(b, words[four * width]);
  } else {
    b[0] = words[2 * four * width];
    b[1] = words[(2 * four + 1) * width];
  }
}

// What a lane has of 16 vectors: rows l/4 and l/4 + 8 of the fragments.
template <class A> struct TileRange {
  using T = OnTensorCores<A>;
  float largest[2], norm[2], total[T::COLUMNS][4];

  __device__ void clear(int half) {
    largest[half] = lowest();
    norm[half] = 0.0f;
#pragma unroll
    for (int n = 0; n < T::COLUMNS; ++n) total[n][2 * half] = total[n][2 * half + 1] = 0.0f;
  }
  __device__ void clear() {
    clear(0);
    clear(1);
  }

  __device__ void keep(Result<A>& result) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int v = lane() / 4 + 8 * half;
      if (v >= A::VECTORS) continue;
      if (lane() % 4 == 0) result.top[v] = largest[half];
      if (lane() % 4 == 0) result.norm[v] = norm[half];
#pragma unroll
      for (int n = 0; n < T::COLUMNS; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          result.total[v][n * 8 + lane() % 4 * 2 + i] = total[n][2 * half + i];
    }
  }
};

__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 1));
  return fmaxf(value, __shfl_xor_sync(ALL_LANES, value, 2));
}
__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(ALL_LANES, value, 1);
  return value + __shfl_xor_sync(ALL_LANES, value, 2);
}

// Products of 16 vectors with a tile's keys: [i % 2 + 2 * t] in x[t][i] is the lane's token,
// counted from its first, i / 2 the row.
template <class A>
__device__ void tile_dots(
    float (&x)[2][4], const TileQueries<A>& queries, const typename A::Pool::Element* keys) {
  using T = OnTensorCores<A>;
  const unsigned* words = reinterpret_cast<const unsigned*>(keys);
  const int column = lane() / 4, quad = lane() % 4;
#pragma unroll
  for (int t = 0; t < 2; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) x[t][i] = 0.0f;
#pragma unroll 4
  for (int step = 0; step < T::STEPS; ++step) {
    unsigned a[T::QUERY_TERMS][4];
#pragma unroll
    for (int term = 0; term < T::QUERY_TERMS; ++term) queries.fragment(a[term], term, step);
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      const int token = column / 2 * 4 + 2 * t + column % 2;
      unsigned b[2] = {0u, 0u};
      if (A::DK % 16 == 0 || step * 16 + quad * 4 < A::DK)
        read_four<typename A::Pool>(b, words + token, step * 4 + quad, TILE);
#pragma unroll
      for (int term = 0; term < T::QUERY_TERMS; ++term) mma_bf16(x[t], a[term], b);
    }
  }
}

// Turn dot products of a partition into weights, and rescale the range.
template <class A>
__device__ void tile_weights(TileRange<A>& range, const TileQueries<A>& queries,
    float (&x)[TILES][2][4], int start, const Span (&spans)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float slope = A::SLOPES ? queries.slope[lane() / 4 + 8 * half] : 0.0f;
    float top = lowest();
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& power = x[tile][i / 2][2 * half + i % 2];
        const int token = start + tile * TILE + lane() % 4 * 4 + i;
        power = spans[half].sees(token)
            ? A::power(power, slope, spans[half].end - 1 - token)
            : lowest();
        top = fmaxf(top, power);
      }
    top = fmaxf(range.largest[half], ceilf(quad_max(top)));
    float sum = 0.0f;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& weight = x[tile][i / 2][2 * half + i % 2];
        weight = weight > lowest() ? exp2f(weight - top) : 0.0f;
        if (A::Pool::NARROW) weight = bf16_float(bf16_bits(weight));
        sum += weight;
      }
    sum = quad_sum(sum);
    const float kept =
        range.largest[half] > lowest() ? power_of_two(range.largest[half] - top) : 0.0f;
    range.norm[half] = fmaf(range.norm[half], kept, sum);
#pragma unroll
    for (int n = 0; n < OnTensorCores<A>::COLUMNS; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) range.total[n][2 * half + i] *= kept;
    range.largest[half] = top;
  }
}

// Add a tile's values by their weights x. Those of tokens outside of `seen` may be anything.
template <class A>
__device__ void add_tile(TileRange<A>& range, const float (&x)[2][4], const float (&scales)[4],
    const typename A::Pool::Element* values, int first, const Span& seen) {
  using T = OnTensorCores<A>;
  const unsigned* words = reinterpret_cast<const unsigned*>(values);
  const int column = lane() / 4, quad = lane() % 4;
  unsigned a[T::WEIGHT_TERMS][4], mask[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      unsigned terms[T::WEIGHT_TERMS];
      split_pair(terms, x[t][2 * half] * scales[2 * t], x[t][2 * half + 1] * scales[2 * t + 1]);
#pragma unroll
      for (int term = 0; term < T::WEIGHT_TERMS; ++term) a[term][half + 2 * t] = terms[term];
    }
#pragma unroll
  for (int t = 0; t < 2; ++t) {
    const int token = first + quad * 4 + 2 * t;
    mask[t] = (seen.sees(token) ? 0xffffu : 0u) | (seen.sees(token + 1) ? 0xffff0000u : 0u);
  }
#pragma unroll
  for (int n = 0; n < T::COLUMNS; ++n) {
    unsigned b[2];
    read_four<typename A::Pool>(b, words + n * 8 + column, quad, A::DV);
#pragma unroll
    for (int t = 0; t < 2; ++t) b[t] &= mask[t];
#pragma unroll
    for (int term = 0; term < T::WEIGHT_TERMS; ++term) mma_bf16(range.total[n], a[term], b);
  }
}

// Scales of the lane's four tokens of a tile; those that are not seen may be anything.
template <class A, int DIM>
__device__ __forceinline__ void read_scales(
    float (&scales)[4], const typename A::Pool::Element* tile, int first, const Span& seen) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = lane() % 4 * 4 + i;
    scales[i] = A::Pool::SCALED && seen.sees(first + token) ? tile_scales<DIM>(tile)[token] : 1.0f;
  }
}

// One partition, by the vectors whose spans the lane has; seen covers the spans of all 16. What
// lies outside of `seen` is not read. AHEAD: without branches, so that the compiler has tiles read
// while others are multiplied, which takes registers; tokens that are not seen have no weight, and
// any tile is read in the place of theirs. Else tiles that nobody sees are skipped.
template <class A, bool AHEAD>
__device__ void attend_partition(TileRange<A>& range, const TileQueries<A>& queries,
    const typename A::Pool::Element* k_pool, const typename A::Pool::Element* v_pool, int kv_head,
    int start, const Span (&spans)[2], const Span& seen, const Pages& pages) {
  using Pool = typename A::Pool;
  auto skipped = [&](int first) {
    return !AHEAD && (first + TILE <= seen.low || first >= seen.end);
  };
  float x[TILES][2][4] = {};
  int tiles[TILES];
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
    tiles[tile] = pages.tile(min(max(start + tile * TILE, seen.low), seen.end - 1));
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    if (skipped(start + tile * TILE)) continue;
    const auto* keys = k_pool + tile_start<Pool, A::KV_HEADS, A::DK>(tiles[tile], kv_head);
    float scales[4];
    read_scales<A, A::DK>(scales, keys, start + tile * TILE, seen);
    tile_dots<A>(x[tile], queries, keys);
#pragma unroll
    for (int t = 0; t < 2; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[tile][t][i] *= queries.scale[lane() / 4 + i / 2 * 8] * scales[2 * t + i % 2];
  }
  tile_weights<A>(range, queries, x, start, spans);
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile) {
    const int first = start + tile * TILE;
    if (skipped(first)) continue;
    const auto* values = v_pool + tile_start<Pool, A::KV_HEADS, A::DV>(tiles[tile], kv_head);
    float scales[4];
    read_scales<A, A::DV>(scales, values, first, seen);
    add_tile<A>(range, x[tile], scales, values, first, seen);
  }
}

} // namespace optc
#endif
