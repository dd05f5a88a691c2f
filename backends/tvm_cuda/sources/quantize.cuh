// Rows to int8 with one scale each: q, s and the sums of every 32 values (docs/normal-form.md).
#ifndef OPTC_QUANTIZE_CUH
#define OPTC_QUANTIZE_CUH
namespace optc {

constexpr int ROW_THREADS = 256;
constexpr int SUM_WIDTH = 32;

// Quantizes the row that value(i) gives; value is called twice for each i.
template <int WIDTH, class Value>
__device__ void quantize_row(Value value, signed char* q, float* s, int* sums, int row) {
  constexpr int PADDED = round_up(WIDTH, SUM_WIDTH);
  float top = 0.0f;
  for (int i = threadIdx.x; i < WIDTH; i += ROW_THREADS) top = fmaxf(top, fabsf(value(i)));
  top = block_max<ROW_THREADS>(top);
  const float scale = top > 0.0f ? top / 127.0f : 1.0f;
  if (threadIdx.x == 0) s[row] = scale;
  const long long base = (long long)row * PADDED;
  for (int block = warp(); block < PADDED / SUM_WIDTH; block += ROW_THREADS / WARP) {
    const int i = block * SUM_WIDTH + lane();
    const int whole = i < WIDTH ? __float2int_rn(value(i) / scale) : 0;
    q[base + i] = (signed char)whole;
    const int sum = warp_sum(whole);
    if (lane() == 0) sums[base / SUM_WIDTH + block] = sum;
  }
}

template <int WIDTH>
__device__ void quantize(const float* x, signed char* q, float* s, int* sums) {
  const float* values = x + (long long)blockIdx.x * WIDTH;
  quantize_row<WIDTH>([&](int i) { return values[i]; }, q, s, sums, blockIdx.x);
}

} // namespace optc
#endif
