// The router of a mixture of experts, a warp a row, and the plan of a step: its rows by expert.
#ifndef OPTC_ROUTER_CUH
#define OPTC_ROUTER_CUH
namespace optc {

enum Scoring { SOFTMAX, SIGMOID, SOFTMAX_AFTER };
enum GroupScore { MAX, TOP2_SUM };
// What can be chosen is at least the least finite number, even rows that are no numbers.
constexpr float LEAST_CHOICE = -3.4028234663852886e38f;

// Index of the first largest of `count` values, of which one at least is above -inf.
__device__ __forceinline__ int first_largest(const float* values, int count) {
  float best = lowest();
  int index = count;
  for (int i = lane(); i < count; i += WARP)
    if (values[i] > best) best = values[i], index = i;
  const float largest = warp_max<WARP>(best);
  return -warp_max<WARP>(best == largest ? -index : -count);
}

template <int E, int K, int SCORING, bool NORMALIZE, unsigned EPSILON, unsigned SCALE, int GROUPS,
    int TOP_GROUPS, int GROUP_SCORE, bool BIAS>
struct Router {
  static constexpr int MEMBERS = E / GROUPS;
  float scores[E], choices[E], groups[GROUPS];

  __device__ void score(const float* logits) {
    float largest = lowest(), total = 0.0f;
    if (SCORING == SOFTMAX) {
      for (int e = lane(); e < E; e += WARP) largest = fmaxf(largest, logits[e]);
      largest = warp_max<WARP>(largest);
    }
    for (int e = lane(); e < E; e += WARP) {
      const float x = logits[e];
      scores[e] = SCORING == SOFTMAX ? expf(x - largest) : SCORING == SIGMOID ? sigmoid(x) : x;
      total += scores[e];
    }
    if (SCORING != SOFTMAX) return;
    total = warp_sum<WARP>(total);
    for (int e = lane(); e < E; e += WARP) scores[e] /= total;
  }

  __device__ void prepare(const float* bias) {
    for (int e = lane(); e < E; e += WARP)
      choices[e] = fmaxf(BIAS ? scores[e] + bias[e] : scores[e], LEAST_CHOICE);
    __syncwarp();
  }

  // Only the experts of the best groups stay.
  __device__ void leave_groups() {
    for (int g = lane(); g < GROUPS; g += WARP) {
      float best = lowest(), second = lowest();
      for (int m = 0; m < MEMBERS; ++m) {
        const float value = choices[g * MEMBERS + m];
        second = fmaxf(second, fminf(best, value));
        best = fmaxf(best, value);
      }
      groups[g] = fmaxf(GROUP_SCORE == TOP2_SUM ? best + second : best, LEAST_CHOICE);
    }
    __syncwarp();
    for (int i = 0; i < TOP_GROUPS; ++i) {
      const int best = first_largest(groups, GROUPS);
      __syncwarp();
      if (lane() == 0) groups[best] = lowest();
      __syncwarp();
    }
    for (int e = lane(); e < E; e += WARP)
      if (groups[e / MEMBERS] != lowest()) choices[e] = lowest();
    __syncwarp();
  }

  __device__ void choose(float* weights, int* experts) {
    for (int i = 0; i < K; ++i) {
      const int best = first_largest(choices, E);
      __syncwarp();
      if (lane() == 0) {
        experts[i] = best;
        weights[i] = scores[best];
        choices[best] = lowest();
      }
      __syncwarp();
    }
  }

  // The scores of those chosen as weights, by one lane, in order.
  static __device__ void weigh(float* weights) {
    float total = 0.0f;
    if (SCORING == SOFTMAX_AFTER) {
      float largest = lowest();
      for (int i = 0; i < K; ++i) largest = fmaxf(largest, weights[i]);
      for (int i = 0; i < K; ++i) total += weights[i] = expf(weights[i] - largest);
      for (int i = 0; i < K; ++i) weights[i] /= total;
    }
    if (NORMALIZE) {
      total = 0.0f;
      for (int i = 0; i < K; ++i) total += weights[i];
      total += bits_float(EPSILON);
      for (int i = 0; i < K; ++i) weights[i] /= total;
    }
    for (int i = 0; i < K; ++i) weights[i] *= bits_float(SCALE);
  }
};

// logits f32 [T, E], bias f32 [E] -> weights f32 [T, K], experts i32 [T, K]; grid (T), a warp each.
template <class R, int E, int K, bool GROUPED>
__device__ void top_k_router(
    const float* logits, const float* bias, float* weights, int* experts) {
  __shared__ R row;
  const long long place = blockIdx.x;
  row.score(logits + place * E);
  row.prepare(bias);
  if (GROUPED) row.leave_groups();
  row.choose(weights + place * K, experts + place * K);
  if (lane() == 0) R::weigh(weights + place * K);
}

constexpr int PLAN_WARPS = 32, SPAN_ROWS = 256;

// Rows by expert (a counting sort that keeps their order), and spans of at most SPAN_ROWS rows of
// one expert: experts i32 [M] -> order i32 [M], spans i32 [M, 3], count i32 [1]. One block; its
// warps take an expert each, 32 rows at once.
template <int E>
__device__ void expert_plan(const int* experts, int* order, int* spans, int* count, int rows) {
  __shared__ int places[E];
  for (int e = warp(); e < E; e += PLAN_WARPS) {
    int size = 0;
    for (int first = 0; first < rows; first += WARP) {
      const int r = first + lane();
      size += __popc(__ballot_sync(ALL_LANES, r < rows && experts[r] == e));
    }
    if (lane() == 0) places[e] = size;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int found = 0, place = 0;
    for (int e = 0; e < E; ++e) {
      const int size = places[e], pieces = ceil_div(size, SPAN_ROWS);
      for (int piece = 0; piece < pieces; ++piece, ++found) {
        spans[3 * found] = e;
        spans[3 * found + 1] = place + size * piece / pieces;
        spans[3 * found + 2] = place + size * (piece + 1) / pieces;
      }
      places[e] = place;
      place += size;
    }
    count[0] = found;
  }
  __syncthreads();
  for (int e = warp(); e < E; e += PLAN_WARPS) {
    int place = places[e];
    for (int first = 0; first < rows; first += WARP) {
      const int r = first + lane();
      const bool mine = r < rows && experts[r] == e;
      const unsigned found = __ballot_sync(ALL_LANES, mine);
      if (mine) order[place + __popc(found & ((1u << lane()) - 1u))] = r;
      place += __popc(found);
    }
  }
}

// y f32 [T * K, N], weights f32 [T, K] -> out f32 [T, N]; grid (T, columns / threads).
template <int N, int K> __device__ void combine_experts(
    const float* y, const float* weights, float* out) {
  const int column = blockIdx.y * blockDim.x + threadIdx.x;
  if (column >= N) return;
  const long long token = blockIdx.x;
  float total = y[token * K * N + column] * weights[token * K];
  for (int i = 1; i < K; ++i)
    total = fmaf(y[(token * K + i) * N + column], weights[token * K + i], total);
  out[token * N + column] = total;
}

} // namespace optc
#endif
