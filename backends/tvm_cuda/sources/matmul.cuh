// What the matmuls share. All weights are packed in blocks of 64 output channels whose rows are 64
// words of 4 bytes along K (docs/normal-form.md), which is what a lane of a B fragment holds.
//
// K is cut into SPLITS runs at fixed places; sums of runs are added in order, from zero. Kernels
// for few and for many rows do so alike, so that a row's bits do not depend on how many there are.
#ifndef OPTC_MATMUL_CUH
#define OPTC_MATMUL_CUH
namespace optc {

constexpr int SPLITS = 8;
constexpr int FEW_COLUMNS = 32;   // of a block of the kernels for few rows; a warp has a run of K
constexpr int MANY_THREADS = 128; // four warps of the kernels for many rows, by 64 columns

// int8 activations per token by int8 or int4 weights; GROUP 0 is a scale per channel.
template <int N_, int K_, int BITS_, int GROUP_, bool ZEROS_, bool BIAS_> struct IntMatmul {
  static constexpr int N = N_, K = K_, BITS = BITS_, GROUP = GROUP_;
  static constexpr bool ZEROS = ZEROS_, BIAS = BIAS_;
  static constexpr int STEPS = ceil_div(K, 32), K_PADDED = STEPS * 32;
  static constexpr int WORDS = BITS; // rows of words of a step of 32
  static constexpr int GROUPS = GROUP ? ceil_div(K, GROUP) : 1;
  static constexpr int GROUP_STEPS = GROUP ? GROUP / 32 : STEPS;
  static constexpr int SPLIT_GROUPS = ceil_div(GROUPS, SPLITS);
  // Signed bytes in the dot products are the stored values minus OFFSET, times UNIT.
  static constexpr int OFFSET = BITS == 8 ? 128 : 8, UNIT = BITS == 8 ? 1 : 16;
};

// Sum of a row's activations over the steps [first, stop).
template <class M> __device__ __forceinline__ int step_sums(const int* xsum, int first, int stop) {
  int total = 0;
  for (int step = first; step < stop; ++step) total += xsum[step];
  return total;
}

// Products of stored values minus zero, from those of stored values minus OFFSET.
template <class M> __device__ __forceinline__ int corrected(int sum, int zero, int activations) {
  return M::ZEROS ? sum + M::UNIT * (M::OFFSET - zero) * activations : sum;
}

// What a scale makes of a sum.
template <class M> __device__ __forceinline__ float unit_scale(float scale) {
  return scale * (1.0f / M::UNIT);
}

// The zero point of a channel; index is of ws.
template <class M> __device__ __forceinline__ int zero_of(const unsigned char* wz, long long index) {
  return M::ZEROS ? (int)wz[index] : M::OFFSET;
}

// The two words of a B fragment from stored ones: two rows of int8, or both nibbles of one of int4,
// which become the high halves of bytes.
template <class M>
__device__ __forceinline__ void signed_bytes(unsigned (&b)[2], unsigned first, unsigned second) {
  b[0] = (M::BITS == 8 ? first : (first << 4) & 0xf0f0f0f0u) ^ 0x80808080u;
  b[1] = (M::BITS == 8 ? second : first & 0xf0f0f0f0u) ^ 0x80808080u;
}

template <class M>
__device__ __forceinline__ void store_result(
    float value, const float* bias, float* out, int row, int column) {
  if (column >= M::N) return;
  out[(long long)row * M::N + column] = M::BIAS ? value + bias[column] : value;
}

// float32 activations, rounded to bfloat16, by bfloat16 weights u16 [N/64, K/2, 64, 2].
template <int N_, int K_, bool BIAS_> struct Bf16Matmul {
  static constexpr int N = N_, K = K_;
  static constexpr bool BIAS = BIAS_;
  static constexpr int STEPS = ceil_div(K, 16), WORDS = ceil_div(K, 2);
  static constexpr int SPLIT_STEPS = ceil_div(STEPS, SPLITS);
};

// Activations k .. k + 3 of a row as two words of bfloat16; zeros beyond K and for absent rows.
template <int K> __device__ __forceinline__ uint2 bf16_four(const float* row, int k, bool present) {
  if (!present || k >= K) return make_uint2(0u, 0u);
  if (K % 4 == 0) {
    const float4 x = *reinterpret_cast<const float4*>(row + k);
    return make_uint2(bf16_pair(x.x, x.y), bf16_pair(x.z, x.w));
  }
  float x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = k + i < K ? row[k + i] : 0.0f;
  return make_uint2(bf16_pair(x[0], x[1]), bf16_pair(x[2], x[3]));
}

} // namespace optc
#endif
