// Rows, rotated in blocks or as they are, to int8 with one scale each: q, s and the sums of every 32 values (docs/normal-form.md).
#ifndef OPTC_QUANTIZE_CUH
#define OPTC_QUANTIZE_CUH
namespace optc {

// The scale and integers, and their sums, of the row rotated in blocks of BLOCK, if that is not 0.
template <int BLOCK, class R>
__device__ void store_quantized(R& values, signed char* q, float* s, int* sums) {
  rotate<BLOCK>(values);
  constexpr int RUN = R::RUN, LANES = SUM_WIDTH / RUN; // lanes whose values have one sum
  const float top = values.largest();
  const float scale = top > 0.0f ? top / 127.0f : 1.0f;
  const int row = blockIdx.x;
  if (threadIdx.x == 0) s[row] = scale;
  q += (long long)row * R::PADDED;
  sums += (long long)row * (R::PADDED / SUM_WIDTH);
#pragma unroll
  for (int run = 0; run < R::RUNS; ++run) {
    const int i = R::place(run);
    unsigned word = 0;
    int sum = 0;
#pragma unroll
    for (int e = 0; e < RUN; ++e) {
      const int whole = __float2int_rn(values.values[run][e] / scale);
      word |= (unsigned)(whole & 255) << (8 * e);
      sum += whole;
    }
    sum = warp_sum<LANES>(sum);
    if (i >= R::PADDED) continue;
    if constexpr (RUN == 4)
      *reinterpret_cast<unsigned*>(q + i) = word;
    else
      q[i] = (signed char)word;
    if (lane() % LANES == 0) sums[i / SUM_WIDTH] = sum;
  }
}

template <int WIDTH, int THREADS, int BLOCK>
__device__ void quantize(const float* x, signed char* q, float* s, int* sums) {
  Row<WIDTH, THREADS> values;
  values.read(x + (long long)blockIdx.x * WIDTH);
  store_quantized<BLOCK>(values, q, s, sums);
}

} // namespace optc
#endif
