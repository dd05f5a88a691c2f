// The elements of KV pools (optc.backends.tvm.kv_layout): a tile of a KV head is made of words of
// PACK elements, K [D / PACK][16 tokens], V [16 / PACK][D], and for int8 16 float scales behind.
#ifndef OPTC_POOLS_CUH
#define OPTC_POOLS_CUH
namespace optc {

struct PoolF32 {
  using Element = float;
  static constexpr int PACK = 1;
  static constexpr bool SCALED = false, NARROW = false;
  static __device__ Element encode(float value, float) { return value; }
  static __device__ float decode(unsigned word, int) { return __uint_as_float(word); }
};

struct PoolBf16 {
  using Element = unsigned short;
  static constexpr int PACK = 2;
  static constexpr bool SCALED = false, NARROW = true; // queries and weights are rounded, too
  static __device__ Element encode(float value, float) { return (Element)bf16_bits(value); }
  static __device__ float decode(unsigned word, int i) {
    return i ? __uint_as_float(word & 0xffff0000u) : __uint_as_float(word << 16);
  }
};

struct PoolInt8 {
  using Element = unsigned char;
  static constexpr int PACK = 4;
  static constexpr bool SCALED = true, NARROW = false;
  static __device__ Element encode(float value, float scale) {
    return (Element)(__float2int_rn(value / scale) + 128);
  }
  static __device__ float decode(unsigned word, int i) {
    return (float)((int)((word >> (8 * i)) & 255u) - 128);
  }
};

// Elements of one tile and KV head, scales included.
template <class Pool> __host__ __device__ constexpr int tile_width(int dim) {
  return TILE * dim + (Pool::SCALED ? TILE * 4 : 0);
}

template <class Pool> __device__ __forceinline__ int k_element(int offset, int d) {
  return (d / Pool::PACK * TILE + offset) * Pool::PACK + d % Pool::PACK;
}

template <class Pool, int DIM> __device__ __forceinline__ int v_element(int offset, int d) {
  return (offset / Pool::PACK * DIM + d) * Pool::PACK + offset % Pool::PACK;
}

// Where a tile of a KV head starts in a pool.
template <class Pool, int KV_HEADS, int DIM>
__device__ __forceinline__ long long tile_start(int tile, int head) {
  return ((long long)tile * KV_HEADS + head) * tile_width<Pool>(DIM);
}

// The scales of a tile of int8.
template <int DIM, class Element>
__device__ __forceinline__ float* tile_scales(const Element* tile) {
  return (float*)(tile + TILE * DIM);
}

} // namespace optc
#endif
