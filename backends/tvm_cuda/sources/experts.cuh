// Matmuls of the experts of each row: those for few rows, by the spans of a step's plan. A block has
// 32 columns of one span's expert, and takes the span's rows in runs; rows of its matmul lie where
// the plan's order says.
#ifndef OPTC_EXPERTS_CUH
#define OPTC_EXPERTS_CUH
namespace optc {

// Rows of one expert: `order` has `count` of them; DIVISOR rows in a row read the same activations.
template <int HALVES_, int DIVISOR> struct OrderedRows {
  static constexpr int HALVES = HALVES_;
  int count;
  const int* order;
  int reads[HALVES];

  __device__ OrderedRows(const int* order_, int count_) : count(count_), order(order_) {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      const int r = half * 8 + lane() / 4;
      reads[half] = r < count ? source(r) : 0;
    }
  }
  __device__ __forceinline__ long long read(int half) const { return reads[half]; }
  __device__ __forceinline__ int source(int r) const { return order[r] / DIVISOR; }
  __device__ __forceinline__ int target(int r) const { return order[r]; }
};

// The plan as kernels get it.
struct Plan {
  const int *order, *spans, *count;

  __device__ bool has(int span) const { return span < count[0]; }
  __device__ int expert(int span) const { return spans[3 * span]; }
};

// Calls take(rows) for a span's rows, 8 or `8 * MOST` at a time.
template <int DIVISOR, int MOST, class Take>
__device__ __forceinline__ void for_span(const Plan& plan, int span, Take take) {
  const int stop = plan.spans[3 * span + 2];
  for (int first = plan.spans[3 * span + 1]; first < stop; first += 8 * MOST) {
    const int count = min(8 * MOST, stop - first);
    if (count <= 8 && MOST > 1)
      take(OrderedRows<1, DIVISOR>(plan.order + first, count));
    else
      take(OrderedRows<MOST, DIVISOR>(plan.order + first, count));
    __syncthreads(); // the sums of these rows were read by all
  }
}

constexpr int EXPERT_HALVES = 4;

// The type behind a constant reference; NVRTC has no headers of C++.
template <class R> struct Bare;
template <class R> struct Bare<const R&> { using Type = R; };
template <class R> using Rows = typename Bare<R>::Type;

// Blocks of one expert's packed weight.
template <class M> constexpr int BLOCKS = ceil_div(M::N, COLUMNS);

// Rows are those of the plan. Grid (2 * BLOCKS, spans).
template <class M, int DIVISOR, class Scale>
__device__ void int_experts(const signed char* x, const float* xs, const int* xsum,
    const int* order, const int* spans, const int* count, const unsigned char* w, const Scale* ws,
    const unsigned char* wz, const float* bias, float* out) {
  const Plan plan = {order, spans, count};
  const int span = blockIdx.y;
  if (!plan.has(span)) return;
  const long long first = (long long)plan.expert(span) * BLOCKS<M>;
  w += first * M::STEPS * M::WORDS * COLUMNS * 4;
  ws += first * M::GROUPS * COLUMNS;
  wz += M::ZEROS ? first * M::GROUPS * COLUMNS : 0;
  bias += M::BIAS ? first * COLUMNS : 0;
  for_span<DIVISOR, EXPERT_HALVES>(plan, span, [&](const auto& rows) {
    constexpr int HALVES = Rows<decltype(rows)>::HALVES;
    if constexpr (M::GROUP)
      few_by_group<M, HALVES>(x, xs, w, ws, wz, bias, out, rows);
    else
      few_by_channel<M, HALVES>(x, xs, xsum, w, ws, wz, bias, out, rows);
  });
}

template <class M, int DIVISOR>
__device__ void bf16_experts(const float* x, const int* order, const int* spans, const int* count,
    const unsigned short* w, const float* bias, float* out) {
  const Plan plan = {order, spans, count};
  const int span = blockIdx.y;
  if (!plan.has(span)) return;
  const long long first = (long long)plan.expert(span) * BLOCKS<M>;
  w += first * M::WORDS * COLUMNS * 2;
  bias += M::BIAS ? first * COLUMNS : 0;
  for_span<DIVISOR, EXPERT_HALVES>(plan, span, [&](const auto& rows) {
    few_bf16<M, Rows<decltype(rows)>::HALVES>(x, w, bias, out, rows);
  });
}

template <class M, int DIVISOR>
__device__ void float32_experts(const float* x, const int* order, const int* spans,
    const int* count, const float* w, const float* bias, float* out) {
  const Plan plan = {order, spans, count};
  const int span = blockIdx.y;
  if (!plan.has(span)) return;
  const long long first = (long long)plan.expert(span) * BLOCKS<M>;
  w += first * M::K * COLUMNS;
  bias += M::BIAS ? first * COLUMNS : 0;
  for_span<DIVISOR, FEW_ROWS / 8>(
      plan, span, [&](const auto& rows) { few_float32<M>(x, w, bias, out, rows); });
}

} // namespace optc
#endif
