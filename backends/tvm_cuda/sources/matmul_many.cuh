// Matmuls of many rows on the tensor cores: 64 or 128 rows by 64 columns a block of threads, operands
// copied ahead into shared memory. What lies there is placed so that the lanes that read a fragment
// meet all banks.
#ifndef OPTC_MATMUL_MANY_CUH
#define OPTC_MATMUL_MANY_CUH
namespace optc {

constexpr int N_TILES = 4; // fragments of a warp along the columns; rows have M_TILES of 16

// Where a warp's tile starts in the block.
template <int M_TILES> __device__ __forceinline__ int warp_row() { return warp() / 2 * 16 * M_TILES; }
__device__ __forceinline__ int warp_column() { return warp() % 2 * 32; }
// Row and column of element i of the C fragment of a tile, relative to these.
__device__ __forceinline__ int c_row(int m, int i) { return m * 16 + lane() / 4 + i / 2 * 8; }
__device__ __forceinline__ int c_column(int n, int i) { return n * 8 + lane() % 4 * 2 + i % 2; }

constexpr int INT_STAGE = 64, INT_STAGES = 3; // activations of a stage, copied ahead

template <class M, int M_TILES> struct IntStage {
  static constexpr int ROWS = 32 * M_TILES, B_ROWS = INT_STAGE / 32 * M::WORDS;
  static constexpr int B_STRIDE = COLUMNS + (M::BITS == 8 ? 4 : 8); // words
  unsigned a[ROWS][INT_STAGE / 4];
  unsigned b[B_ROWS][B_STRIDE];

  // Where a word of a row is: every other pair of rows has its halves exchanged.
  static __device__ __forceinline__ int swizzled(int row, int word) { return word ^ (row / 2 % 2 * 8); }

  // Start copying activations [start, start + 64) of the rows and their weights.
  __device__ void fetch(const signed char* x, const unsigned char* w, int first_row, int rows,
      int block, int start) {
    for (int i = threadIdx.x; i < ROWS * (INT_STAGE / 16); i += MANY_THREADS) {
      const int row = i / (INT_STAGE / 16), k = i % (INT_STAGE / 16) * 16;
      const bool valid = first_row + row < rows && start + k < M::K_PADDED;
      const long long place = (long long)(first_row + row) * M::K_PADDED + start + k;
      copy_async(&a[row][swizzled(row, k / 4)], x + (valid ? place : 0), valid);
    }
    constexpr int TOTAL = M::STEPS * M::WORDS;
    for (int i = threadIdx.x; i < B_ROWS * (COLUMNS / 4); i += MANY_THREADS) {
      const int row = start / 32 * M::WORDS + i / (COLUMNS / 4), column = i % (COLUMNS / 4) * 4;
      const bool valid = row < TOTAL;
      const long long place = (((long long)block * TOTAL + row) * COLUMNS + column) * 4;
      copy_async(&b[i / (COLUMNS / 4)][column], w + (valid ? place : 0), valid);
    }
    copy_commit();
  }

  // Dot products of the stage's first (step 0) or second 32 activations.
  __device__ void multiply(int (&c)[M_TILES][N_TILES][4], int step) const {
    const int quad = lane() % 4;
    unsigned af[M_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row<M_TILES>() + m * 16 + lane() / 4 + half * 8;
        const uint2 pair = *reinterpret_cast<const uint2*>(&a[row][swizzled(row, step * 8 + 2 * quad)]);
        af[m][half] = pair.x;
        af[m][half + 2] = pair.y;
      }
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) {
      const int column = warp_column() + n * 8 + lane() / 4;
      const int row = step * M::WORDS + quad * (M::BITS / 4);
      unsigned bf[2];
      signed_bytes<M>(bf, b[row][column], b[row + M::BITS / 4 - 1][column]);
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) mma_int8(c[m][n], af[m], bf);
    }
  }
};

// Calls take(c, step) after each step of 32 activations.
template <class M, int M_TILES, class Take>
__device__ void int_pipeline(const signed char* x, const unsigned char* w, int first_row, int rows,
    int block, int (&c)[M_TILES][N_TILES][4], Take take) {
  __shared__ __align__(16) IntStage<M, M_TILES> stages[INT_STAGES];
  constexpr int COUNT = ceil_div(M::K_PADDED, INT_STAGE);
#pragma unroll
  for (int s = 0; s < INT_STAGES - 1; ++s)
    stages[s].fetch(x, w, first_row, rows, block, s * INT_STAGE);
  for (int s = 0; s < COUNT; ++s) {
    copy_wait<INT_STAGES - 2>();
    __syncthreads(); // the stage has arrived, and nobody reads the one that is fetched next
    stages[(s + INT_STAGES - 1) % INT_STAGES].fetch(
        x, w, first_row, rows, block, (s + INT_STAGES - 1) * INT_STAGE);
#pragma unroll
    for (int step = 0; step < INT_STAGE / 32; ++step)
      if (s * (INT_STAGE / 32) + step < M::STEPS) {
        stages[s % INT_STAGES].multiply(c, step);
        take(s * (INT_STAGE / 32) + step);
      }
  }
  copy_wait<0>();
}

template <class M, int M_TILES>
__device__ void int_matmul_many_channels(const signed char* x, const float* xs, const int* xsum,
    const unsigned char* w, const float* ws, const unsigned char* wz, const float* bias,
    float* out, int rows) {
  const int block = blockIdx.x, first_row = blockIdx.y * 32 * M_TILES;
  int c[M_TILES][N_TILES][4] = {};
  int_pipeline<M, M_TILES>(x, w, first_row, rows, block, c, [](int) {});
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + warp_row<M_TILES>() + c_row(m, 2 * half);
      if (row >= rows) continue;
      const int activations =
          M::ZEROS ? step_sums<M>(xsum + (long long)row * M::STEPS, 0, M::STEPS) : 0;
#pragma unroll
      for (int n = 0; n < N_TILES; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int channel = block * COLUMNS + warp_column() + c_column(n, i);
          const int total =
              corrected<M>(c[m][n][2 * half + i], zero_of<M>(wz, channel), activations);
          store_result<M>(
              (float)total * unit_scale<M>(ws[channel]) * xs[row], bias, out, row, channel);
        }
    }
}

template <class M, int M_TILES>
__device__ void int_matmul_many_groups(const signed char* x, const float* xs, const int* xsum,
    const unsigned char* w, const unsigned short* ws, const unsigned char* wz, const float* bias,
    float* out, int rows) {
  const int block = blockIdx.x, first_row = blockIdx.y * 32 * M_TILES;
  int c[M_TILES][N_TILES][4] = {};
  float partial[M_TILES][N_TILES][4] = {}, total[M_TILES][N_TILES][4] = {};
  int_pipeline<M, M_TILES>(x, w, first_row, rows, block, c, [&](int step) {
    if ((step + 1) % M::GROUP_STEPS && step + 1 < M::STEPS) return; // within a group
    const int group = step / M::GROUP_STEPS, first = group * M::GROUP_STEPS;
    const bool split_ends = (group + 1) % M::SPLIT_GROUPS == 0 || group + 1 == M::GROUPS;
    const long long scales = ((long long)block * M::GROUPS + group) * COLUMNS + warp_column();
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + warp_row<M_TILES>() + c_row(m, 2 * half);
        const int activations = M::ZEROS && row < rows ?
            step_sums<M>(xsum + (long long)row * M::STEPS, first, step + 1) : 0;
#pragma unroll
        for (int n = 0; n < N_TILES; ++n)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            const long long index = scales + c_column(n, e);
            const int sum = corrected<M>(c[m][n][e], zero_of<M>(wz, index), activations);
            const float scale = unit_scale<M>(half_float(ws[index]));
            partial[m][n][e] = fmaf((float)sum, scale, partial[m][n][e]);
            c[m][n][e] = 0;
            if (split_ends) {
              total[m][n][e] += partial[m][n][e];
              partial[m][n][e] = 0.0f;
            }
          }
      }
  });
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first_row + warp_row<M_TILES>() + c_row(m, i);
        const int channel = block * COLUMNS + warp_column() + c_column(n, i);
        if (row < rows) store_result<M>(total[m][n][i] * xs[row], bias, out, row, channel);
      }
}

constexpr int BF16_STAGE = 64;                         // activations of a stage
constexpr int BF16_A_STRIDE = BF16_STAGE / 2 + 8;      // words
constexpr int BF16_B_STRIDE = COLUMNS + 4;             // words

template <class M, int M_TILES> struct Bf16Stage {
  static constexpr int ROWS = 32 * M_TILES;
  static constexpr int LOADS = ROWS * (BF16_STAGE / 4) / MANY_THREADS; // of four activations
  unsigned a[ROWS][BF16_A_STRIDE];
  unsigned b[BF16_STAGE / 2][BF16_B_STRIDE];

  __device__ void fetch_weights(const unsigned short* w, int block, int start) {
    for (int i = threadIdx.x; i < BF16_STAGE / 2 * (COLUMNS / 4); i += MANY_THREADS) {
      const int row = start / 2 + i / (COLUMNS / 4), column = i % (COLUMNS / 4) * 4;
      const bool valid = row < M::WORDS;
      const long long place = (((long long)block * M::WORDS + row) * COLUMNS + column) * 2;
      copy_async(&b[i / (COLUMNS / 4)][column], w + (valid ? place : 0), valid);
    }
    copy_commit();
  }

  // Activations pass through registers, where they are rounded.
  static __device__ void read(
      uint2 (&held)[LOADS], const float* x, int first_row, int rows, int start) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const int load = i * MANY_THREADS + threadIdx.x, row = first_row + load / (BF16_STAGE / 4);
      held[i] = bf16_four<M::K>(
          x + (long long)row * M::K, start + load % (BF16_STAGE / 4) * 4, row < rows);
    }
  }

  __device__ void keep(const uint2 (&held)[LOADS]) {
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      const int load = i * MANY_THREADS + threadIdx.x;
      *reinterpret_cast<uint2*>(&a[load / (BF16_STAGE / 4)][load % (BF16_STAGE / 4) * 2]) = held[i];
    }
  }

  // The stage's activations 16 * step and the next, in the places of bf16_matmul_few.
  __device__ void multiply(float (&c)[M_TILES][N_TILES][4], int step) const {
    const int word = step * 8 + lane() % 4 * 2;
    unsigned af[M_TILES][4];
#pragma unroll
    for (int m = 0; m < M_TILES; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = warp_row<M_TILES>() + m * 16 + lane() / 4 + half * 8;
        const uint2 pair = *reinterpret_cast<const uint2*>(&a[row][word]);
        af[m][half] = pair.x;
        af[m][half + 2] = pair.y;
      }
#pragma unroll
    for (int n = 0; n < N_TILES; ++n) {
      const int column = warp_column() + n * 8 + lane() / 4;
      const unsigned bf[2] = {b[word][column], b[word + 1][column]};
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) mma_bf16(c[m][n], af[m], bf);
    }
  }
};

template <class M, int M_TILES>
__device__ void bf16_matmul_many(
    const float* x, const unsigned short* w, const float* bias, float* out, int rows) {
  using Stage = Bf16Stage<M, M_TILES>;
  __shared__ __align__(16) Stage stages[2];
  const int block = blockIdx.x, first_row = blockIdx.y * 32 * M_TILES;
  constexpr int COUNT = ceil_div(M::STEPS, BF16_STAGE / 16);
  float partial[M_TILES][N_TILES][4] = {}, total[M_TILES][N_TILES][4] = {};
  uint2 held[Stage::LOADS];
  stages[0].fetch_weights(w, block, 0);
  Stage::read(held, x, first_row, rows, 0);
  stages[0].keep(held);
  for (int s = 0; s < COUNT; ++s) {
    copy_wait<0>();
    __syncthreads();
    if (s + 1 < COUNT) {
      stages[(s + 1) % 2].fetch_weights(w, block, (s + 1) * BF16_STAGE);
      Stage::read(held, x, first_row, rows, (s + 1) * BF16_STAGE);
    }
#pragma unroll
    for (int half = 0; half < BF16_STAGE / 16; ++half) {
      const int step = s * (BF16_STAGE / 16) + half;
      if (step >= M::STEPS) continue;
      stages[s % 2].multiply(partial, half);
      if ((step + 1) % M::SPLIT_STEPS && step + 1 < M::STEPS) continue; // within a run
#pragma unroll
      for (int m = 0; m < M_TILES; ++m)
#pragma unroll
        for (int n = 0; n < N_TILES; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            total[m][n][i] += partial[m][n][i];
            partial[m][n][i] = 0.0f;
          }
    }
    if (s + 1 < COUNT) stages[(s + 1) % 2].keep(held);
  }
#pragma unroll
  for (int m = 0; m < M_TILES; ++m)
#pragma unroll
    for (int n = 0; n < N_TILES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = first_row + warp_row<M_TILES>() + c_row(m, i);
        const int channel = block * COLUMNS + warp_column() + c_column(n, i);
        if (row < rows) store_result<M>(total[m][n][i], bias, out, row, channel);
      }
}

} // namespace optc
#endif
