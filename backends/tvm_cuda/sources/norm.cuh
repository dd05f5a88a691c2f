// RMS and layer normalization, with the residual before and the quantization behind. A block of
// threads works on one row.
#ifndef OPTC_NORM_CUH
#define OPTC_NORM_CUH
namespace optc {

__device__ __forceinline__ float inverse_root(float mean, unsigned epsilon) {
  return 1.0f / sqrtf(mean + bits_float(epsilon));
}

// A row of x, or of residual + x, which is written to sum, normalized and scaled.
template <unsigned EPSILON, bool RESIDUAL, class R>
__device__ __forceinline__ void rms_normed(
    R& v, const float* residual, const float* x, const float* scale, float* sum) {
  const long long base = (long long)blockIdx.x * R::WIDTH;
  R other, scales;
  v.read(x + base);
  scales.read(scale);
  if (RESIDUAL) {
    other.read(residual + base);
    v.change(other, [](float a, float b) { return b + a; });
    v.write(sum + base);
  }
  const float factor = inverse_root(v.squares() / (float)R::WIDTH, EPSILON);
  v.change(scales, [&](float a, float b) { return a * factor * b; });
}

template <int WIDTH, int THREADS, unsigned EPSILON, bool RESIDUAL>
__device__ void rms_norm(
    const float* residual, const float* x, const float* scale, float* sum, float* out) {
  Row<WIDTH, THREADS> v;
  rms_normed<EPSILON, RESIDUAL>(v, residual, x, scale, sum);
  v.write(out + (long long)blockIdx.x * WIDTH);
}

template <int WIDTH, int THREADS, unsigned EPSILON, bool RESIDUAL, int BLOCK>
__device__ void rms_norm_quantize(const float* residual, const float* x, const float* scale,
    float* sum, signed char* q, float* s, int* sums) {
  Row<WIDTH, THREADS> v;
  rms_normed<EPSILON, RESIDUAL>(v, residual, x, scale, sum);
  store_quantized<BLOCK>(v, q, s, sums);
}

template <int WIDTH, int THREADS, unsigned EPSILON, bool BIAS>
__device__ void layer_norm(const float* x, const float* scale, const float* bias, float* out) {
  const long long base = (long long)blockIdx.x * WIDTH;
  Row<WIDTH, THREADS> v, scales, biases;
  v.read(x + base);
  scales.read(scale);
  if (BIAS) biases.read(bias);
  const float mean = v.sum() / (float)WIDTH;
  v.change(v, [&](float a, float) { return a - mean; });
  const float factor = inverse_root(v.squares() / (float)WIDTH, EPSILON);
#pragma unroll
  for (int run = 0; run < v.RUNS; ++run)
#pragma unroll
    for (int e = 0; e < v.RUN; ++e) {
      const float value = v.values[run][e] * factor, scaled = scales.values[run][e];
      v.values[run][e] = BIAS ? fmaf(value, scaled, biases.values[run][e]) : value * scaled;
    }
  v.write(out + base);
}

// Each warp normalizes one run of DIM values.
template <int HEADS, int DIM, int THREADS, unsigned EPSILON>
__device__ void head_rms_norm(const float* x, const float* scale, float* out) {
  for (int head = warp(); head < HEADS; head += THREADS / WARP) {
    const long long base = ((long long)blockIdx.x * HEADS + head) * DIM;
    float squares = 0.0f;
    for (int i = lane(); i < DIM; i += WARP) squares = fmaf(x[base + i], x[base + i], squares);
    const float factor = inverse_root(warp_sum(squares) / (float)DIM, EPSILON);
    for (int i = lane(); i < DIM; i += WARP) out[base + i] = x[base + i] * factor * scale[i];
  }
}

} // namespace optc
#endif
