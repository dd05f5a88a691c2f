// What all kernels share: reductions in a fixed order and conversions of bits.
// Products that feed sums are written as fmaf and the compiler may contract nothing else, so that
// every kernel that computes a row gives it the same bits.
#ifndef OPTC_COMMON_CUH
#define OPTC_COMMON_CUH
namespace optc {

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int TILE = 16;    // slots of a tile of a KV pool
constexpr int COLUMNS = 64; // output channels of a block of a packed weight

__host__ __device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
__host__ __device__ constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }

__device__ __forceinline__ int lane() { return threadIdx.x % WARP; }
__device__ __forceinline__ int warp() { return threadIdx.x / WARP; }

__device__ __forceinline__ float bits_float(unsigned bits) { return __uint_as_float(bits); }

__device__ __forceinline__ float bf16_float(unsigned bits) { return __uint_as_float(bits << 16); }

// The bits of a finite float rounded to bfloat16, ties to even.
__device__ __forceinline__ unsigned bf16_bits(float value) {
  const unsigned bits = __float_as_uint(value);
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

// Two floats as one word of bfloat16, the first in the low half.
__device__ __forceinline__ unsigned bf16_pair(float low, float high) {
  return bf16_bits(low) | (bf16_bits(high) << 16);
}

// The value of float16 bits, subnormal numbers included.
__device__ __forceinline__ float half_float(unsigned bits) {
  const unsigned sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  // as if the exponent were that of float32, then moved from bias 127 to 15
  const float value = __uint_as_float(rest << 13) * __uint_as_float(0x77800000u);
  return __uint_as_float(sign | __float_as_uint(value));
}

// Of every LANES neighbouring lanes, for all of them.
template <int LANES = WARP> __device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int mask = LANES / 2; mask; mask /= 2) value += __shfl_xor_sync(ALL_LANES, value, mask);
  return value;
}

template <int LANES = WARP> __device__ __forceinline__ int warp_sum(int value) {
#pragma unroll
  for (int mask = LANES / 2; mask; mask /= 2) value += __shfl_xor_sync(ALL_LANES, value, mask);
  return value;
}

template <int LANES = WARP> __device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int mask = LANES / 2; mask; mask /= 2)
    value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, mask));
  return value;
}

template <int LANES = WARP> __device__ __forceinline__ int warp_max(int value) {
#pragma unroll
  for (int mask = LANES / 2; mask; mask /= 2)
    value = max(value, __shfl_xor_sync(ALL_LANES, value, mask));
  return value;
}

// Sum of every thread's value, for all of them: within warps, then warp after warp.
template <int THREADS> __device__ float block_sum(float value) {
  __shared__ float parts[THREADS / WARP];
  value = warp_sum(value);
  __syncthreads(); // the last result was read by everybody
  if (lane() == 0) parts[warp()] = value;
  __syncthreads();
  float total = parts[0];
#pragma unroll
  for (int i = 1; i < THREADS / WARP; ++i) total += parts[i];
  return total;
}

template <int THREADS> __device__ float block_max(float value) {
  __shared__ float parts[THREADS / WARP];
  value = warp_max(value);
  __syncthreads();
  if (lane() == 0) parts[warp()] = value;
  __syncthreads();
  float largest = parts[0];
#pragma unroll
  for (int i = 1; i < THREADS / WARP; ++i) largest = fmaxf(largest, parts[i]);
  return largest;
}

} // namespace optc
#endif
