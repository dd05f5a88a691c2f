// A row that the threads of a block, or of a warp, hold in registers, so that it is read once.
// Where its width allows, a thread has runs of four values, which it reads and writes as one.
#ifndef OPTC_ROWS_CUH
#define OPTC_ROWS_CUH
namespace optc {

constexpr int SUM_WIDTH = 32; // values of int8 whose sum is kept

template <int WIDTH_, int THREADS_> struct Row {
  static constexpr int WIDTH = WIDTH_, THREADS = THREADS_;
  static constexpr int RUN = WIDTH % 4 ? 1 : 4;
  static constexpr int PADDED = round_up(WIDTH, SUM_WIDTH);
  static constexpr int RUNS = ceil_div(PADDED / RUN, THREADS); // of a thread, some perhaps beyond
  float values[RUNS][RUN];

  static __device__ __forceinline__ int thread() {
    return THREADS == WARP ? lane() : (int)threadIdx.x;
  }

  // Where one of the thread's runs starts.
  static __device__ __forceinline__ int place(int run) {
    return (run * THREADS + thread()) * RUN;
  }

  // Read it from memory; what lies beyond the width is zero.
  __device__ __forceinline__ void read(const float* row) {
#pragma unroll
    for (int run = 0; run < RUNS; ++run) {
      const int i = place(run);
      float(&v)[RUN] = values[run];
#pragma unroll
      for (int e = 0; e < RUN; ++e) v[e] = 0.0f;
      if (i >= WIDTH) continue;
      if constexpr (RUN == 4) {
        const float4 four = *reinterpret_cast<const float4*>(row + i);
        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
      } else {
        v[0] = row[i];
      }
    }
  }

  __device__ __forceinline__ void write(float* row) const {
#pragma unroll
    for (int run = 0; run < RUNS; ++run) {
      const int i = place(run);
      const float(&v)[RUN] = values[run];
      if (i >= WIDTH) continue;
      if constexpr (RUN == 4)
        *reinterpret_cast<float4*>(row + i) = make_float4(v[0], v[1], v[2], v[3]);
      else
        row[i] = v[0];
    }
  }

  // Replace each value by change(value, the other row's).
  template <class Change> __device__ __forceinline__ void change(const Row& other, Change change) {
#pragma unroll
    for (int run = 0; run < RUNS; ++run)
#pragma unroll
      for (int e = 0; e < RUN; ++e) values[run][e] = change(values[run][e], other.values[run][e]);
  }

  // What add(so far, value) makes of the thread's values within the width.
  template <class Add> __device__ __forceinline__ float folded(Add add) const {
    float total = 0.0f;
#pragma unroll
    for (int run = 0; run < RUNS; ++run)
#pragma unroll
      for (int e = 0; e < RUN; ++e)
        if (place(run) < WIDTH) total = add(total, values[run][e]);
    return total;
  }
  __device__ __forceinline__ float sum() const {
    return block_sum<THREADS>(folded([](float total, float v) { return total + v; }));
  }
  __device__ __forceinline__ float squares() const {
    return block_sum<THREADS>(folded([](float total, float v) { return fmaf(v, v, total); }));
  }
  __device__ __forceinline__ float largest() const {
    return block_max<THREADS>(folded([](float top, float v) { return fmaxf(top, fabsf(v)); }));
  }
};

} // namespace optc
#endif
