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

// The bits of a float rounded to bfloat16, ties to even.
__device__ __forceinline__ unsigned bf16_bits(float value) { return bf16_pair(value, 0.0f) & 0xffffu; }

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

// Sum of every thread's value, for all of them: within warps, then of their sums.
template <int THREADS> __device__ float block_sum(float value) {
  __shared__ float parts[THREADS / WARP];
  value = warp_sum(value);
  __syncthreads(); // the last result was read by everybody
  if (lane() == 0) parts[warp()] = value;
  __syncthreads();
  return warp_sum(lane() < THREADS / WARP ? parts[lane()] : 0.0f);
}

// The largest of every thread's value, none of them negative.
template <int THREADS> __device__ float block_max(float value) {
  __shared__ float parts[THREADS / WARP];
  value = warp_max(value);
  __syncthreads();
  if (lane() == 0) parts[warp()] = value;
  __syncthreads();
  return warp_max(lane() < THREADS / WARP ? parts[lane()] : 0.0f);
}

} // namespace optc
#endif
