// Matmuls of up to 16 rows a block of threads: limited by reading the weights, which go from memory
// to registers 16 bytes a load and into the tensor cores as they are. A block has 32 columns, each
// of its warps a run of K. Lane l loads columns 4*(l/4) .. + 3, one for each of four C fragments.
#ifndef OPTC_MATMUL_FEW_CUH
#define OPTC_MATMUL_FEW_CUH
namespace optc {

template <class T> using FewSums = T[SPLITS][FEW_ROWS][FEW_COLUMNS + 1];

// Put a warp's C fragments into its place.
template <class T> __device__ void keep_sums(FewSums<T>& sums, const T (&c)[4][4]) {
  const int row = lane() / 4, quad = lane() % 4;
#pragma unroll
  for (int t = 0; t < 4; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[warp()][row + i / 2 * 8][4 * (2 * quad + i % 2) + t] = c[t][i];
}

template <class T> __device__ __forceinline__ T total_of(FewSums<T>& sums, int row, int column) {
  T total = 0;
#pragma unroll
  for (int split = 0; split < SPLITS; ++split) total += sums[split][row][column];
  return total;
}

// Dot products of the steps [first, stop) of 32.
template <class M>
__device__ void int_steps(
    int (&c)[4][4], const signed char* x, const uint4* w, int row, int rows, int first, int stop) {
  const int quad = lane() % 4;
#pragma unroll 4
  for (int step = first; step < stop; ++step) {
    const long long place = (long long)step * 32 + quad * 8;
    const uint2 zero = make_uint2(0u, 0u);
    const uint2 low = row < rows ? *reinterpret_cast<const uint2*>(x + place) : zero;
    const uint2 high = row + 8 < rows ?
        *reinterpret_cast<const uint2*>(x + 8 * M::K_PADDED + place) : zero;
    const unsigned a[4] = {low.x, high.x, low.y, high.y};
    const uint4* words = w + (long long)step * M::WORDS * (COLUMNS / 4);
    const uint4 one = words[(M::BITS == 8 ? 2 * quad : quad) * (COLUMNS / 4)];
    const uint4 two = M::BITS == 8 ? words[(2 * quad + 1) * (COLUMNS / 4)] : one;
    const unsigned ones[4] = {one.x, one.y, one.z, one.w}, twos[4] = {two.x, two.y, two.z, two.w};
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      unsigned b[2];
      if (M::BITS == 8) signed_bytes(b, ones[t], twos[t]);
      else nibbles(b, ones[t]);
      mma_int8(c[t], a, b);
    }
  }
}

template <class M>
__device__ void int_matmul_few_channels(const signed char* x, const float* xs, const int* xsum,
    const unsigned char* w, const float* ws, const unsigned char* wz, const float* bias,
    float* out, int rows) {
  __shared__ FewSums<int> sums;
  const int block = blockIdx.x / 2, start = blockIdx.x % 2 * FEW_COLUMNS;
  const int first_row = blockIdx.y * FEW_ROWS, row = first_row + lane() / 4;
  const uint4* words = reinterpret_cast<const uint4*>(w) +
      (long long)block * M::STEPS * M::WORDS * (COLUMNS / 4) + start / 4 + lane() / 4;
  int c[4][4] = {};
  constexpr int RUN = ceil_div(M::STEPS, SPLITS);
  int_steps<M>(c, x + (long long)row * M::K_PADDED, words, row, rows, min(warp() * RUN, M::STEPS),
      min((warp() + 1) * RUN, M::STEPS));
  keep_sums(sums, c);
  __syncthreads();
  for (int i = threadIdx.x; i < FEW_ROWS * FEW_COLUMNS; i += blockDim.x) {
    const int r = first_row + i / FEW_COLUMNS, column = start + i % FEW_COLUMNS;
    if (r >= rows) continue;
    const long long channel = (long long)block * COLUMNS + column;
    const int activations = M::SUMS ? step_sums<M>(xsum + (long long)r * M::STEPS, 0, M::STEPS) : 0;
    const int total = corrected<M>(
        total_of(sums, i / FEW_COLUMNS, i % FEW_COLUMNS), zero_of<M>(wz, channel), activations);
    store_result<M>((float)total * ws[channel] * xs[r], bias, out, r, (int)channel, rows);
  }
}

template <class M>
__device__ void int_matmul_few_groups(const signed char* x, const float* xs, const int* xsum,
    const unsigned char* w, const unsigned short* ws, const unsigned char* wz, const float* bias,
    float* out, int rows) {
  __shared__ FewSums<float> sums;
  const int block = blockIdx.x / 2, start = blockIdx.x % 2 * FEW_COLUMNS, quad = lane() % 4;
  const int first_row = blockIdx.y * FEW_ROWS, row = first_row + lane() / 4;
  const uint4* words = reinterpret_cast<const uint4*>(w) +
      (long long)block * M::STEPS * M::WORDS * (COLUMNS / 4) + start / 4 + lane() / 4;
  float partial[4][4] = {};
  const int stop = min((warp() + 1) * M::SPLIT_GROUPS, M::GROUPS);
  for (int group = warp() * M::SPLIT_GROUPS; group < stop; ++group) {
    const int first = group * M::GROUP_STEPS, last = min(first + M::GROUP_STEPS, M::STEPS);
    int c[4][4] = {}, activations[2] = {};
    int_steps<M>(c, x + (long long)row * M::K_PADDED, words, row, rows, first, last);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (M::SUMS && row + 8 * i < rows)
        activations[i] = step_sums<M>(xsum + (long long)(row + 8 * i) * M::STEPS, first, last);
    const long long scales = ((long long)block * M::GROUPS + group) * COLUMNS + start + 8 * quad;
#pragma unroll
    for (int t = 0; t < 4; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const long long index = scales + 4 * (i % 2) + t;
        const int sum = corrected<M>(c[t][i], zero_of<M>(wz, index), activations[i / 2]);
        partial[t][i] = fmaf((float)sum, half_float(ws[index]), partial[t][i]);
      }
  }
  keep_sums(sums, partial);
  __syncthreads();
  for (int i = threadIdx.x; i < FEW_ROWS * FEW_COLUMNS; i += blockDim.x) {
    const int r = first_row + i / FEW_COLUMNS;
    if (r >= rows) continue;
    const float total = total_of(sums, i / FEW_COLUMNS, i % FEW_COLUMNS);
    store_result<M>(total * xs[r], bias, out, r, block * COLUMNS + start + i % FEW_COLUMNS, rows);
  }
}

template <class M>
__device__ void bf16_matmul_few(
    const float* x, const unsigned short* w, const float* bias, float* out, int rows) {
  __shared__ FewSums<float> sums;
  const int block = blockIdx.x / 2, start = blockIdx.x % 2 * FEW_COLUMNS, quad = lane() % 4;
  const int first_row = blockIdx.y * FEW_ROWS, row = first_row + lane() / 4;
  const uint4* words = reinterpret_cast<const uint4*>(w) +
      (long long)block * M::WORDS * (COLUMNS / 4) + start / 4 + lane() / 4;
  const float* values = x + (long long)row * M::K;
  float c[4][4] = {};
  const int stop = min((warp() + 1) * M::SPLIT_STEPS, M::STEPS);
#pragma unroll 4
  for (int step = warp() * M::SPLIT_STEPS; step < stop; ++step) {
    const int k = step * 16 + quad * 4;
    const uint2 low = bf16_four<M::K>(values, k, row < rows);
    const uint2 high = bf16_four<M::K>(values + 8 * M::K, k, row + 8 < rows);
    const unsigned a[4] = {low.x, high.x, low.y, high.y};
    const uint4 zero = make_uint4(0u, 0u, 0u, 0u);
    const uint4 one = k / 2 < M::WORDS ? words[(long long)(k / 2) * (COLUMNS / 4)] : zero;
    const uint4 two = k / 2 + 1 < M::WORDS ? words[(long long)(k / 2 + 1) * (COLUMNS / 4)] : zero;
    const unsigned ones[4] = {one.x, one.y, one.z, one.w}, twos[4] = {two.x, two.y, two.z, two.w};
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const unsigned b[2] = {ones[t], twos[t]};
      mma_bf16(c[t], a, b);
    }
  }
  keep_sums(sums, c);
  __syncthreads();
  for (int i = threadIdx.x; i < FEW_ROWS * FEW_COLUMNS; i += blockDim.x)
    store_result<M>(total_of(sums, i / FEW_COLUMNS, i % FEW_COLUMNS), bias, out,
        first_row + i / FEW_COLUMNS, block * COLUMNS + start + i % FEW_COLUMNS, rows);
}

// float32 weights [N/64, K, 64] on the ordinary units, for any number of rows: a lane has a column.
template <int N_, int K_, bool BIAS_> struct Float32Matmul {
  static constexpr int N = N_, K = K_, RUN = ceil_div(K_, SPLITS);
  static constexpr bool BIAS = BIAS_;
};

template <class M>
__device__ void float32_matmul(
    const float* x, const float* w, const float* bias, float* out, int rows) {
  __shared__ FewSums<float> sums;
  const int block = blockIdx.x / 2, start = blockIdx.x % 2 * FEW_COLUMNS;
  const int first_row = blockIdx.y * FEW_ROWS, present = min(FEW_ROWS, rows - first_row);
  const float* column = w + (long long)block * M::K * COLUMNS + start + lane();
  const float* values = x + (long long)first_row * M::K;
  float total[FEW_ROWS] = {};
  const int stop = min((warp() + 1) * M::RUN, M::K);
#pragma unroll 4
  for (int k = warp() * M::RUN; k < stop; ++k) {
    const float weight = column[(long long)k * COLUMNS];
#pragma unroll
    for (int r = 0; r < FEW_ROWS; ++r)
      if (r < present) total[r] = fmaf(values[(long long)r * M::K + k], weight, total[r]);
  }
#pragma unroll
  for (int r = 0; r < FEW_ROWS; ++r) sums[warp()][r][lane()] = total[r];
  __syncthreads();
  for (int i = threadIdx.x; i < FEW_ROWS * FEW_COLUMNS; i += blockDim.x)
    store_result<M>(total_of(sums, i / FEW_COLUMNS, i % FEW_COLUMNS), bias, out,
        first_row + i / FEW_COLUMNS, block * COLUMNS + start + i % FEW_COLUMNS, rows);
}

} // namespace optc
#endif
