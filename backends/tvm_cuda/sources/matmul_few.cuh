// Matmuls of up to 64 rows: limited by reading the weights, which go from memory to registers 16
// bytes a load and into the tensor cores as they are. A block has 32 columns and up to 8 * HALVES
// rows, each of its warps a run of K. Lane l loads columns 4*(l/4) .. + 3, one for each of four C
// fragments of 16 rows, several steps ahead.
#ifndef OPTC_MATMUL_FEW_CUH
#define OPTC_MATMUL_FEW_CUH
namespace optc {

constexpr int FEW_ROWS = 16; // of a fragment

template <class T> using FewSums = T[SPLITS][FEW_ROWS][FEW_COLUMNS + 1];
// Fragments of a block's rows; those of one tile of 16 rows are `of`.
template <class T, int HALVES> struct FewTiles {
  static constexpr int TILES = ceil_div(HALVES, 2);
  T of[TILES][4][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
      for (int t = 0; t < 4; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) of[m][t][i] = 0;
  }
  // Add up the warps' sums, a tile after the other, and give take(row, column, sum) each; columns
  // are counted from the block's first.
  template <class Take> __device__ void finish(FewSums<T>& sums, int rows, Take take) const {
    const int row = lane() / 4, quad = lane() % 4;
#pragma unroll
    for (int m = 0; m < TILES; ++m) {
      if (m) __syncthreads(); // the last tile's sums were read by all
#pragma unroll
      for (int t = 0; t < 4; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[warp()][row + i / 2 * 8][4 * (2 * quad + i % 2) + t] = of[m][t][i];
      __syncthreads();
      const int count = min(FEW_ROWS, rows - m * FEW_ROWS) * FEW_COLUMNS;
      for (int i = threadIdx.x; i < count; i += SPLITS * WARP) {
        T total = 0;
#pragma unroll
        for (int split = 0; split < SPLITS; ++split)
          total += sums[split][i / FEW_COLUMNS][i % FEW_COLUMNS];
        take(m * FEW_ROWS + i / FEW_COLUMNS, i % FEW_COLUMNS, total);
      }
    }
  }
};

// All rows of a step, of which there are at most 8 * HALVES.
template <int HALVES> struct AllRows {
  int count;

  // Where the lane's row of a half of a fragment is read.
  __device__ __forceinline__ long long read(int half) const { return half * 8 + lane() / 4; }
  // Where row r of the block is read, and where it is written.
  __device__ __forceinline__ int source(int r) const { return r; }
  __device__ __forceinline__ int target(int r) const { return r; }
};

// Where a block works, which has all of its rows.
template <int HALVES> struct FewPlace {
  int block, start, rows;

  __device__ explicit FewPlace(int rows_)
      : block(blockIdx.x / 2), start(blockIdx.x % 2 * FEW_COLUMNS), rows(rows_) {}
  // A lane's first four columns of rows of words, `height` to a block.
  __device__ const uint4* words(const void* w, int height) const {
    return static_cast<const uint4*>(w) + (long long)block * height * (COLUMNS / 4) + start / 4 +
        lane() / 4;
  }
  __device__ bool has(int half) const { return half < HALVES && half * 8 + lane() / 4 < rows; }
};

// What a lane multiplies of some steps: its words of weights, and the scales of groups that end in
// these steps, of eight columns.
template <class M, int AHEAD> struct IntSteps {
  static constexpr bool GROUPED = M::GROUP && AHEAD % M::GROUP_STEPS == 0;
  static constexpr int ENDS = GROUPED ? AHEAD / M::GROUP_STEPS : 1;
  uint4 words[AHEAD][M::BITS / 4], scales[ENDS];
  uint2 zeros[ENDS];

  __device__ __forceinline__ void fetch(const uint4* w, const unsigned short* ws,
      const unsigned char* wz, int step, int stop) {
    const int quad = lane() % 4;
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) {
      const uint4* place = w + (long long)(step + u) * M::WORDS * (COLUMNS / 4);
#pragma unroll
      for (int i = 0; i < M::BITS / 4; ++i)
        words[u][i] = step + u < stop ? place[(quad * (M::BITS / 4) + i) * (COLUMNS / 4)] :
                                        make_uint4(0u, 0u, 0u, 0u);
    }
    if constexpr (GROUPED) {
#pragma unroll
      for (int g = 0; g < ENDS; ++g)
        if (step + g * M::GROUP_STEPS < stop) fetch_scales(g, ws, wz, step / M::GROUP_STEPS + g);
    }
  }
  // ws and wz are of the lane's columns of the first group.
  __device__ __forceinline__ void fetch_scales(
      int g, const unsigned short* ws, const unsigned char* wz, int group) {
    scales[g] = *reinterpret_cast<const uint4*>(ws + (long long)group * COLUMNS);
    if (M::ZEROS) zeros[g] = *reinterpret_cast<const uint2*>(wz + (long long)group * COLUMNS);
  }
  __device__ __forceinline__ float scale(int g, int column) const {
    const unsigned four[4] = {scales[g].x, scales[g].y, scales[g].z, scales[g].w};
    return unit_scale<M>(half_float((unsigned short)(four[column / 2] >> (column % 2 * 16))));
  }
  __device__ __forceinline__ int zero(int g, int column) const {
    return M::ZEROS ? ((column < 4 ? zeros[g].x : zeros[g].y) >> (column % 4 * 8)) & 255u : 0;
  }
};

// Dot products of the steps [first, stop) of 32, and sums of activations if zeros need them; calls
// take(steps, u, step) after each, where u is its place in those that were fetched.
template <class M, int HALVES, int AHEAD, class Rows, class Take>
__device__ __forceinline__ void int_steps(FewTiles<int, HALVES>& c,
    int (&ones)[ceil_div(HALVES, 2)][4], const FewPlace<HALVES>& place, const Rows& rows,
    const signed char* x,
    const unsigned char* w, const unsigned short* ws, const unsigned char* wz, int first, int stop,
    Take take) {
  constexpr int TILES = ceil_div(HALVES, 2);
  const uint4* words = place.words(w, M::STEPS * M::WORDS);
  const signed char* values = x + lane() % 4 * 8;
  IntSteps<M, AHEAD> next;
  next.fetch(words, ws, wz, first, stop); // weights, which no kernel writes
  wait_for_kernels_before();
  for (int step = first; step < stop; step += AHEAD) {
    const IntSteps<M, AHEAD> now = next;
    if (step + AHEAD < stop) next.fetch(words, ws, wz, step + AHEAD, stop);
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) {
      unsigned a[TILES][4] = {};
#pragma unroll
      for (int half = 0; half < HALVES; ++half)
        if (place.has(half) && step + u < stop) {
          const uint2 pair = *reinterpret_cast<const uint2*>(
              values + rows.read(half) * M::K_PADDED + (step + u) * 32);
          a[half / 2][half % 2] = pair.x;
          a[half / 2][half % 2 + 2] = pair.y;
        }
      const uint4 one = now.words[u][0], two = now.words[u][M::BITS / 4 - 1];
      const unsigned ones_of[4] = {one.x, one.y, one.z, one.w};
      const unsigned twos_of[4] = {two.x, two.y, two.z, two.w};
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        unsigned b[2];
        signed_bytes<M>(b, ones_of[t], twos_of[t]);
#pragma unroll
        for (int m = 0; m < TILES; ++m) mma_int8(c.of[m][t], a[m], b);
      }
      if constexpr (M::ZEROS) {
        const unsigned unit[2] = {0x01010101u, 0x01010101u};
#pragma unroll
        for (int m = 0; m < TILES; ++m) mma_int8(ones[m], a[m], unit);
      }
      take(now, u, step + u);
    }
  }
}

// Steps that are fetched ahead, as many as registers hold beside the sums: half of them, or all
// where a weight has too few columns for two blocks on a multiprocessor.
constexpr int NARROW = 4096;
template <class M, int HALVES>
constexpr int FEW_AHEAD = (M::N > NARROW ? 4 : 8) / (HALVES > 4 ? 4 : HALVES > 2 ? 2 : 1);

template <class M, int HALVES, class Rows>
__device__ __forceinline__ void few_by_channel(const signed char* x, const float* xs,
    const int* xsum, const unsigned char* w, const float* ws, const unsigned char* wz,
    const float* bias, float* out, const Rows& rows) {
  __shared__ FewSums<int> sums;
  const FewPlace<HALVES> place(rows.count);
  constexpr int RUN = ceil_div(M::STEPS, SPLITS);
  FewTiles<int, HALVES> c;
  int ones[ceil_div(HALVES, 2)][4]; // unused: a row's sum of activations is that of xsum
  c.clear();
  using Plain = IntMatmul<M::N, M::K, M::BITS, 0, false, false>;
  int_steps<Plain, HALVES, FEW_AHEAD<M, HALVES>>(c, ones, place, rows, x, w, nullptr, nullptr,
      min(warp() * RUN, M::STEPS), min((warp() + 1) * RUN, M::STEPS), [](auto&, int, int) {});
  c.finish(sums, rows.count, [&](int r, int column, int total) {
    const int channel = place.block * COLUMNS + place.start + column, row = rows.source(r);
    const int activations =
        M::ZEROS ? step_sums<M>(xsum + (long long)row * M::STEPS, 0, M::STEPS) : 0;
    const float sum = (float)corrected<M>(total, zero_of<M>(wz, channel), activations);
    store_result<M>(
        sum * unit_scale<M>(ws[channel]) * xs[row], bias, out, rows.target(r), channel);
  });
}

template <class M, int HALVES>
__device__ void int_matmul_few_channels(const signed char* x, const float* xs, const int* xsum,
    const unsigned char* w, const float* ws, const unsigned char* wz, const float* bias,
    float* out, int rows) {
  few_by_channel<M, HALVES>(x, xs, xsum, w, ws, wz, bias, out, AllRows<HALVES>{rows});
}

template <class M, int HALVES, class Rows>
__device__ __forceinline__ void few_by_group(const signed char* x, const float* xs,
    const unsigned char* w, const unsigned short* ws, const unsigned char* wz, const float* bias,
    float* out, const Rows& rows) {
  constexpr int TILES = ceil_div(HALVES, 2), AHEAD = FEW_AHEAD<M, HALVES>;
  __shared__ FewSums<float> sums;
  const FewPlace<HALVES> place(rows.count);
  const long long first_scale =
      (long long)place.block * M::GROUPS * COLUMNS + place.start + lane() % 4 * 8;
  FewTiles<int, HALVES> c;
  FewTiles<float, HALVES> partial;
  int ones[TILES][4] = {};
  c.clear();
  partial.clear();
  constexpr int RUN = M::SPLIT_GROUPS * M::GROUP_STEPS;
  const int first = min(warp() * RUN, M::STEPS), stop = min((warp() + 1) * RUN, M::STEPS);
  auto take = [&](const IntSteps<M, AHEAD>& steps, int u, int step) {
    IntSteps<M, AHEAD> read; // where groups do not end in steps that are known ahead
    if constexpr (steps.GROUPED) {
      if ((u + 1) % M::GROUP_STEPS || step / M::GROUP_STEPS * M::GROUP_STEPS >= stop) return;
    } else {
      if (step >= stop || ((step + 1) % M::GROUP_STEPS && step + 1 < stop)) return;
      read.fetch_scales(0, ws + first_scale, wz + first_scale, step / M::GROUP_STEPS);
    }
    const IntSteps<M, AHEAD>& held = steps.GROUPED ? steps : read;
    const int g = steps.GROUPED ? u / M::GROUP_STEPS : 0;
#pragma unroll
    for (int t = 0; t < 4; ++t)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float scale = held.scale(g, 4 * i + t);
        const int zero = held.zero(g, 4 * i + t);
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
          int& sum = c.of[half / 2][t][half % 2 * 2 + i];
          float& total = partial.of[half / 2][t][half % 2 * 2 + i];
          const int activations = M::ZEROS ? ones[half / 2][half % 2 * 2] : 0;
          total = fmaf((float)corrected<M>(sum, zero, activations), scale, total);
          sum = 0;
        }
      }
    if constexpr (M::ZEROS) {
#pragma unroll
      for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) ones[m][i] = 0;
    }
  };
  int_steps<M, HALVES, AHEAD>(
      c, ones, place, rows, x, w, ws + first_scale, wz + first_scale, first, stop, take);
  partial.finish(sums, rows.count, [&](int r, int column, float total) {
    const int channel = place.block * COLUMNS + place.start + column;
    store_result<M>(total * xs[rows.source(r)], bias, out, rows.target(r), channel);
  });
}

template <class M, int HALVES>
__device__ void int_matmul_few_groups(const signed char* x, const float* xs, const int* xsum,
    const unsigned char* w, const unsigned short* ws, const unsigned char* wz, const float* bias,
    float* out, int rows) {
  few_by_group<M, HALVES>(x, xs, w, ws, wz, bias, out, AllRows<HALVES>{rows});
}

template <class M, int HALVES, class Rows>
__device__ __forceinline__ void few_bf16(const float* x, const unsigned short* w,
    const float* bias, float* out, const Rows& rows) {
  constexpr int TILES = ceil_div(HALVES, 2), AHEAD = FEW_AHEAD<M, HALVES>;
  __shared__ FewSums<float> sums;
  const FewPlace<HALVES> place(rows.count);
  const int quad = lane() % 4;
  const uint4* words = place.words(w, M::WORDS);
  FewTiles<float, HALVES> c;
  c.clear();
  const int first = min(warp() * M::SPLIT_STEPS, M::STEPS);
  const int stop = min((warp() + 1) * M::SPLIT_STEPS, M::STEPS);
  uint4 now[AHEAD][2], next[AHEAD][2];
  auto fetch = [&](int step) {
#pragma unroll
    for (int u = 0; u < AHEAD; ++u)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = (step + u) * 8 + quad * 2 + i;
        next[u][i] = step + u < stop && row < M::WORDS ?
            words[(long long)row * (COLUMNS / 4)] : make_uint4(0u, 0u, 0u, 0u);
      }
  };
  fetch(first);
  wait_for_kernels_before();
  for (int step = first; step < stop; step += AHEAD) {
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) now[u][0] = next[u][0], now[u][1] = next[u][1];
    if (step + AHEAD < stop) fetch(step + AHEAD);
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) {
      unsigned a[TILES][4] = {};
#pragma unroll
      for (int half = 0; half < HALVES; ++half) {
        const uint2 pair = bf16_four<M::K>(x + rows.read(half) * M::K,
            (step + u) * 16 + quad * 4, place.has(half) && step + u < stop);
        a[half / 2][half % 2] = pair.x;
        a[half / 2][half % 2 + 2] = pair.y;
      }
      const unsigned ones[4] = {now[u][0].x, now[u][0].y, now[u][0].z, now[u][0].w};
      const unsigned twos[4] = {now[u][1].x, now[u][1].y, now[u][1].z, now[u][1].w};
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        const unsigned b[2] = {ones[t], twos[t]};
#pragma unroll
        for (int m = 0; m < TILES; ++m) mma_bf16(c.of[m][t], a[m], b);
      }
    }
  }
  c.finish(sums, rows.count, [&](int r, int column, float total) {
    store_result<M>(
        total, bias, out, rows.target(r), place.block * COLUMNS + place.start + column);
  });
}

template <class M, int HALVES>
__device__ void bf16_matmul_few(
    const float* x, const unsigned short* w, const float* bias, float* out, int rows) {
  few_bf16<M, HALVES>(x, w, bias, out, AllRows<HALVES>{rows});
}

// float32 weights [N/64, K, 64] on the ordinary units, for any number of rows: a lane has a column.
template <int N_, int K_, bool BIAS_> struct Float32Matmul {
  static constexpr int N = N_, K = K_, RUN = ceil_div(K_, SPLITS);
  static constexpr bool BIAS = BIAS_;
};

template <class M, class Rows>
__device__ __forceinline__ void few_float32(
    const float* x, const float* w, const float* bias, float* out, const Rows& rows) {
  __shared__ FewSums<float> sums;
  const int block = blockIdx.x / 2, start = blockIdx.x % 2 * FEW_COLUMNS;
  const float* column = w + (long long)block * M::K * COLUMNS + start + lane();
  float total[FEW_ROWS] = {};
  const int stop = min((warp() + 1) * M::RUN, M::K);
#pragma unroll 4
  for (int k = warp() * M::RUN; k < stop; ++k) {
    const float weight = column[(long long)k * COLUMNS];
#pragma unroll
    for (int r = 0; r < FEW_ROWS; ++r)
      if (r < rows.count)
        total[r] = fmaf(x[(long long)rows.source(r) * M::K + k], weight, total[r]);
  }
#pragma unroll
  for (int r = 0; r < FEW_ROWS; ++r) sums[warp()][r][lane()] = total[r];
  __syncthreads();
  for (int i = threadIdx.x; i < FEW_ROWS * FEW_COLUMNS; i += SPLITS * WARP) {
    float sum = 0.0f;
#pragma unroll
    for (int split = 0; split < SPLITS; ++split)
      sum += sums[split][i / FEW_COLUMNS][i % FEW_COLUMNS];
    const int r = i / FEW_COLUMNS;
    if (r < rows.count)
      store_result<M>(
          sum, bias, out, rows.target(r), block * COLUMNS + start + i % FEW_COLUMNS);
  }
}

template <class M>
__device__ void float32_matmul(
    const float* x, const float* w, const float* bias, float* out, int rows) {
  const long long first = (long long)blockIdx.y * FEW_ROWS;
  const AllRows<FEW_ROWS / 8> mine{min(FEW_ROWS, rows - (int)first)};
  few_float32<M>(x + first * M::K, w, bias, out + first * M::N, mine);
}

} // namespace optc
#endif
