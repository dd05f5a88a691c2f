// RMS and layer normalization, with the residual before and the quantization behind. A block of
// threads works on one row.
#ifndef OPTC_NORM_CUH
#define OPTC_NORM_CUH
namespace optc {

__device__ __forceinline__ float inverse_root(float mean, unsigned epsilon) {
  return 1.0f / sqrtf(mean + bits_float(epsilon));
}

// v = x, or residual + x, which is written to sum; gives 1 / sqrt(mean(v * v) + epsilon).
template <int WIDTH, unsigned EPSILON, bool RESIDUAL, class Value>
__device__ float rms_factor(Value value, float* sum) {
  float squares = 0.0f;
  for (int i = threadIdx.x; i < WIDTH; i += ROW_THREADS) {
    const float v = value(i);
    if (RESIDUAL) sum[i] = v;
    squares = fmaf(v, v, squares);
  }
  return inverse_root(block_sum<ROW_THREADS>(squares) / (float)WIDTH, EPSILON);
}

template <int WIDTH, bool RESIDUAL>
__device__ __forceinline__ float residual_sum(const float* residual, const float* x, int i) {
  return RESIDUAL ? residual[i] + x[i] : x[i];
}

template <int WIDTH, unsigned EPSILON, bool RESIDUAL>
__device__ void rms_norm(
    const float* residual, const float* x, const float* scale, float* sum, float* out) {
  const long long base = (long long)blockIdx.x * WIDTH;
  auto value = [&](int i) { return residual_sum<WIDTH, RESIDUAL>(residual + base, x + base, i); };
  const float factor = rms_factor<WIDTH, EPSILON, RESIDUAL>(value, sum + base);
  for (int i = threadIdx.x; i < WIDTH; i += ROW_THREADS)
    out[base + i] = value(i) * factor * scale[i];
}

template <int WIDTH, unsigned EPSILON, bool RESIDUAL>
__device__ void rms_norm_quantize(const float* residual, const float* x, const float* scale,
    float* sum, signed char* q, float* s, int* sums) {
  const long long base = (long long)blockIdx.x * WIDTH;
  auto value = [&](int i) { return residual_sum<WIDTH, RESIDUAL>(residual + base, x + base, i); };
  const float factor = rms_factor<WIDTH, EPSILON, RESIDUAL>(value, sum + base);
  auto normed = [&](int i) { return value(i) * factor * scale[i]; };
  quantize_row<WIDTH>(normed, q, s, sums, blockIdx.x);
}

template <int WIDTH, unsigned EPSILON, bool BIAS>
__device__ void layer_norm(const float* x, const float* scale, const float* bias, float* out) {
  const long long base = (long long)blockIdx.x * WIDTH;
  float total = 0.0f;
  for (int i = threadIdx.x; i < WIDTH; i += ROW_THREADS) total += x[base + i];
  const float mean = block_sum<ROW_THREADS>(total) / (float)WIDTH;
  float squares = 0.0f;
  for (int i = threadIdx.x; i < WIDTH; i += ROW_THREADS) {
    const float centred = x[base + i] - mean;
    squares = fmaf(centred, centred, squares);
  }
  const float factor = inverse_root(block_sum<ROW_THREADS>(squares) / (float)WIDTH, EPSILON);
  for (int i = threadIdx.x; i < WIDTH; i += ROW_THREADS) {
    const float value = (x[base + i] - mean) * factor;
    out[base + i] = BIAS ? fmaf(value, scale[i], bias[i]) : value * scale[i];
  }
}

// Each warp normalizes one run of DIM values.
template <int HEADS, int DIM, unsigned EPSILON>
__device__ void head_rms_norm(const float* x, const float* scale, float* out) {
  for (int head = warp(); head < HEADS; head += ROW_THREADS / WARP) {
    const long long base = ((long long)blockIdx.x * HEADS + head) * DIM;
    float squares = 0.0f;
    for (int i = lane(); i < DIM; i += WARP) squares = fmaf(x[base + i], x[base + i], squares);
    const float factor = inverse_root(warp_sum(squares) / (float)DIM, EPSILON);
    for (int i = lane(); i < DIM; i += WARP) out[base + i] = x[base + i] * factor * scale[i];
  }
}

} // namespace optc
#endif
