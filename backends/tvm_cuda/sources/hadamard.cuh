// The rotation of rows in blocks (optc.executable.block_hadamard): sums and differences of
// neighbours, then of values 2 apart, 4 apart and so on, as in NumPy, bit by bit.
#ifndef OPTC_HADAMARD_CUH
#define OPTC_HADAMARD_CUH
namespace optc {

__host__ __device__ constexpr int square_root(int square) {
  int root = 1;
  while (root * root < square) ++root;
  return root;
}

__device__ __forceinline__ void add_and_subtract(float& a, float& b) {
  const float first = a;
  a = first + b;
  b = first - b;
}

// Memory by which the warps of a block see each other's values.
template <int SIZE> __device__ __forceinline__ float* exchange() {
  __shared__ float values[SIZE];
  return values;
}

// Of the first WHOLE values, each and that APART from it become their sum and their difference.
// Both lie in one run, in lanes of one warp, in two warps, or in two runs of one thread.
template <int APART, int WHOLE, class R> __device__ __forceinline__ void butterflies(R& row) {
  constexpr int RUN = R::RUN, THREADS = R::THREADS, SPAN = THREADS * RUN;
  if constexpr (APART < RUN) {
#pragma unroll
    for (int run = 0; run < R::RUNS; ++run)
#pragma unroll
      for (int e = 0; e < RUN; ++e)
        if (!(e & APART) && R::place(run) < WHOLE)
          add_and_subtract(row.values[run][e], row.values[run][e + APART]);
  } else if constexpr (APART < SPAN) {
    constexpr int OTHER = APART / RUN; // threads apart
#pragma unroll
    for (int run = 0; run < R::RUNS; ++run) {
      float others[RUN], (&v)[RUN] = row.values[run];
      if constexpr (OTHER < WARP) {
#pragma unroll
        for (int e = 0; e < RUN; ++e) others[e] = __shfl_xor_sync(ALL_LANES, v[e], OTHER);
      } else {
        float* shared = exchange<SPAN>();
#pragma unroll
        for (int e = 0; e < RUN; ++e) shared[e * THREADS + R::thread()] = v[e];
        __syncthreads();
#pragma unroll
        for (int e = 0; e < RUN; ++e) others[e] = shared[e * THREADS + (R::thread() ^ OTHER)];
        __syncthreads(); // the next run is written there
      }
      if (R::place(run) >= WHOLE) continue;
#pragma unroll
      for (int e = 0; e < RUN; ++e)
        v[e] = R::place(run) & APART ? others[e] - v[e] : v[e] + others[e];
    }
  } else {
    constexpr int OTHER = APART / SPAN; // runs apart
#pragma unroll
    for (int run = 0; run + OTHER < R::RUNS; ++run)
#pragma unroll
      for (int e = 0; e < RUN; ++e)
        if (!(run & OTHER) && R::place(run + OTHER) < WHOLE)
          add_and_subtract(row.values[run][e], row.values[run + OTHER][e]);
  }
}

// H over √BLOCK of the blocks that lie side by side.
template <int BLOCK, int APART = 1, class R> __device__ __forceinline__ void rotate_whole(R& row) {
  constexpr int WHOLE = R::WIDTH / BLOCK * BLOCK;
  butterflies<APART, WHOLE>(row);
  if constexpr (2 * APART < BLOCK) {
    rotate_whole<BLOCK, 2 * APART>(row);
  } else {
    constexpr float NORM = 1.0f / square_root(BLOCK);
#pragma unroll
    for (int run = 0; run < R::RUNS; ++run)
#pragma unroll
      for (int e = 0; e < R::RUN; ++e)
        if (R::place(run) < WHOLE) row.values[run][e] *= NORM;
  }
}

// Times the signs of a bent function: -1 where the halves of the index's bits share an odd number.
template <class R> __device__ __forceinline__ void bend(R& block) {
  constexpr int SIDE = square_root(R::WIDTH);
#pragma unroll
  for (int run = 0; run < R::RUNS; ++run)
#pragma unroll
    for (int e = 0; e < R::RUN; ++e) {
      const int i = R::place(run) + e;
      if (__popc(i / SIDE & i % SIDE) & 1) block.values[run][e] = -block.values[run][e];
    }
}

// The block over the last channels, by the first warp.
template <int BLOCK, bool INVERSE, class R> __device__ __forceinline__ void rotate_last(R& row) {
  constexpr int START = R::WIDTH - BLOCK;
  __shared__ __align__(16) float last[BLOCK];
#pragma unroll
  for (int run = 0; run < R::RUNS; ++run)
#pragma unroll
    for (int e = 0; e < R::RUN; ++e) {
      const int i = R::place(run) + e;
      if (i >= START && i < R::WIDTH) last[i - START] = row.values[run][e];
    }
  __syncthreads();
  if (warp() == 0) {
    Row<BLOCK, WARP> block;
    block.read(last);
    if (!INVERSE) bend(block);
    rotate_whole<BLOCK>(block);
    if (INVERSE) bend(block);
    block.write(last);
  }
  __syncthreads();
#pragma unroll
  for (int run = 0; run < R::RUNS; ++run)
#pragma unroll
    for (int e = 0; e < R::RUN; ++e) {
      const int i = R::place(run) + e;
      if (i >= START && i < R::WIDTH) row.values[run][e] = last[i - START];
    }
}

// Rotate a block of threads' row, or rotate it back; a BLOCK of 0 leaves it as it is.
template <int BLOCK, bool INVERSE = false, class R> __device__ __forceinline__ void rotate(R& row) {
  if constexpr (BLOCK > 0) {
    static_assert(BLOCK <= R::WIDTH, "a row is as wide as a block at least");
    constexpr bool MORE = R::WIDTH % BLOCK != 0;
    if constexpr (MORE && INVERSE) rotate_last<BLOCK, true>(row);
    rotate_whole<BLOCK>(row);
    if constexpr (MORE && !INVERSE) rotate_last<BLOCK, false>(row);
  }
}

template <int WIDTH, int THREADS, int BLOCK, bool INVERSE>
__device__ void block_hadamard(const float* x, float* out) {
  const long long base = (long long)blockIdx.x * WIDTH;
  Row<WIDTH, THREADS> values;
  values.read(x + base);
  rotate<BLOCK, INVERSE>(values);
  values.write(out + base);
}

} // namespace optc
#endif
