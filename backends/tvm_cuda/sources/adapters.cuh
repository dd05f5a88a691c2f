// LoRA adapters by row: x is shrunk to the rank of the row's adapter, grown and added to y. Each value
// is one sum in a fixed order over its own row; rows without an adapter (slot -1) keep y.
#ifndef OPTC_ADAPTERS_CUH
#define OPTC_ADAPTERS_CUH
namespace optc {

constexpr int ADAPTER_WARPS = 8;

// x [T, K] (f32, or i8 with a scale a row) by a f32 [slots, K, WIDTH] -> out f32 [T, WIDTH]. A lane
// has a column, a warp a run of K; the runs are added in order. Grid (T, WIDTH / 32).
template <class X, int K, int K_STRIDE, int WIDTH, bool SCALED>
__device__ void adapter_shrink(
    const X* x, const float* scale, const int* adapters, const float* a, float* out) {
  __shared__ float sums[ADAPTER_WARPS][WARP];
  constexpr int RUN = ceil_div(K, ADAPTER_WARPS);
  const int row = blockIdx.x, column = blockIdx.y * WARP + lane(), slot = adapters[row];
  if (slot < 0) return; // the whole block
  const X* values = x + (long long)row * K_STRIDE;
  const float* weights = a + (long long)slot * K * WIDTH + column;
  float total = 0.0f;
  if (column < WIDTH)
    for (int k = warp() * RUN; k < min((warp() + 1) * RUN, K); ++k)
      total = fmaf((float)values[k], weights[(long long)k * WIDTH], total);
  sums[warp()][lane()] = total;
  __syncthreads();
  if (warp() || column >= WIDTH) return;
  total = 0.0f;
#pragma unroll
  for (int w = 0; w < ADAPTER_WARPS; ++w) total += sums[w][lane()];
  out[(long long)row * WIDTH + column] = SCALED ? total * scale[row] : total;
}

// y f32 [T, N], h f32 [T, PARTS * RANK], b f32 [slots, RANK, N] -> out f32 [T, N], of which this is
// the part of columns [FIRST, STOP), whose values of h start at OFFSET. Grid (T, columns / threads).
template <int N, int WIDTH, int RANK, int OFFSET, int FIRST, int STOP>
__device__ void adapter_grow(
    const float* y, const float* h, const int* adapters, const float* b, float* out) {
  const int column = FIRST + blockIdx.y * blockDim.x + threadIdx.x, slot = adapters[blockIdx.x];
  if (column >= STOP) return;
  const long long place = (long long)blockIdx.x * N + column;
  const float* values = h + (long long)blockIdx.x * WIDTH + OFFSET;
  float total = 0.0f;
  if (slot >= 0)
    for (int j = 0; j < RANK; ++j)
      total = fmaf(values[j], b[((long long)slot * RANK + j) * N + column], total);
  out[place] = y[place] + total;
}

} // namespace optc
#endif
