// What paged attention knows of a row: which tokens it sees, and how they are cut.
//
// Tokens are cut into partitions at fixed absolute positions. Neighbouring partitions form up to
// RANGES ranges, each computed by one warp with an online softmax (Dao et al., 2022), from nothing;
// their results are merged in order. All places follow from the row alone, whoever computes it, so
// that a row's bits depend on its query and its K and V. Weights are powers of two relative to an
// integer, so that rescaling is exact.
#ifndef OPTC_ATTENTION_ROWS_CUH
#define OPTC_ATTENTION_ROWS_CUH
namespace optc {

constexpr float LOG2_E = 1.4426950408889634f;
constexpr int PARTITION = 64; // tokens
constexpr int RANGES = 32;    // of a row, at most

__device__ __forceinline__ float lowest() { return __uint_as_float(0xff800000u); }

// 2 ** n of an integer n <= 0; zero below the least normal number.
__device__ __forceinline__ float power_of_two(float n) {
  return n < -126.0f ? 0.0f : __uint_as_float((unsigned)((int)n + 127) << 23);
}

// The tokens low .. end - 1, which a row sees; none if end is 0.
struct Span {
  int low, end;

  __device__ bool sees(int token) const { return token >= low && token < end; }
  __device__ int first() const { return low / PARTITION; }
  __device__ int count() const { return ceil_div(end, PARTITION) - first(); }
  // Partitions of a range.
  __device__ int size() const { return max(1, ceil_div(count(), RANGES)); }
  // Whether a range ends with partition p.
  __device__ bool closes(int p) const {
    const int place = p - first();
    return place >= 0 && place < count() && ((place + 1) % size() == 0 || place + 1 == count());
  }
};

// The span of the row that has `later` new rows of its sequence of `length` tokens behind it: of
// its last A::WINDOW tokens and of its chunk of A::CHUNK tokens, where there are such.
template <class A> __device__ __forceinline__ Span span_of(int length, int later) {
  const int end = length - later;
  const int low = A::WINDOW ? max(end - A::WINDOW, 0) : 0;
  return {A::CHUNK ? max(low, (end - 1) / (A::CHUNK ? A::CHUNK : 1) * A::CHUNK) : low, end};
}

// Where the tokens of a sequence lie.
struct Pages {
  const int* table; // its blocks
  int block_size;

  __device__ int tile(int token) const {
    return table[token / block_size] * (block_size / TILE) + token % block_size / TILE;
  }
};

// The step as all kernels get it.
struct Step {
  const int *query_starts, *kv_lengths, *block_tables, *block_size;
  int sequences, blocks;

  __device__ int fresh(int b) const { return query_starts[b + 1] - query_starts[b]; }
  __device__ int length(int group, int b) const { return kv_lengths[group * sequences + b]; }
  __device__ Pages pages(int group, int b) const {
    return {block_tables + ((long long)group * sequences + b) * blocks, block_size[0]};
  }
  // The sequence of a row, found by a warp; -1 if there is none.
  __device__ int sequence(int row) const {
    int found = -1;
    for (int first = 0; first < sequences; first += WARP) {
      const int b = first + lane();
      if (b < sequences && query_starts[b] <= row && row < query_starts[b + 1]) found = b;
    }
    return warp_max(found);
  }
};

// A configuration of the kernels. VECTORS query heads of a row are computed together; where a block
// computes a row, it has WARPS. SINKS: each head has a logit that joins the softmax and has no
// value. SLOPES: each head has a slope that a score loses for each token between it and the row.
template <class Pool_, int HEADS_, int KV_HEADS_, int DK_, int DV_, unsigned SCALE_,
    unsigned SOFTCAP_, int WINDOW_, int CHUNK_, bool SINKS_, bool SLOPES_, int QUERY_BITS_,
    int VECTORS_, int WARPS_>
struct Attention {
  using Pool = Pool_;
  static constexpr int HEADS = HEADS_, KV_HEADS = KV_HEADS_, DK = DK_, DV = DV_;
  static constexpr int WINDOW = WINDOW_, CHUNK = CHUNK_;
  static constexpr bool SINKS = SINKS_, SLOPES = SLOPES_;
  static constexpr int QUERY_BITS = QUERY_BITS_, VECTORS = VECTORS_, WARPS = WARPS_;
  static constexpr unsigned SCALE = SCALE_, SOFTCAP = SOFTCAP_;
  static constexpr int SHARED = HEADS / KV_HEADS;        // query heads of a KV head
  static constexpr int RUNS = ceil_div(SHARED, VECTORS); // of which a block computes one

  // The dot product with a key so many tokens before the row's own, as a power of two.
  static __device__ float power(float dot, float slope, int distance) {
    const float cap = bits_float(SOFTCAP);
    float x = dot * bits_float(SCALE);
    if (SOFTCAP) x = cap * tanhf(x / cap);
    if (SLOPES) x = fmaf(-slope, (float)distance, x);
    return x * LOG2_E;
  }
};

// The query heads that a block computes, of all those that share a KV head.
template <class A> struct Heads {
  int kv_head, first, count;

  __device__ Heads() : kv_head(blockIdx.y / A::RUNS) {
    const int skipped = blockIdx.y % A::RUNS * A::VECTORS;
    first = kv_head * A::SHARED + skipped;
    count = min(A::VECTORS, A::SHARED - skipped);
  }
};

// Where the result of a range is put: of each vector the largest exponent, the sum of weights, and
// the weighted values.
template <class A> struct Result {
  float top[A::VECTORS], norm[A::VECTORS], total[A::VECTORS][A::DV];
};

// Ranges merged so far, of one value.
struct Merged {
  float top, norm, total;

  __device__ void clear() {
    top = lowest();
    norm = total = 0.0f;
  }
  __device__ void add(float other_top, float other_norm, float other_total) {
    if (other_top == lowest()) return;
    const float larger = fmaxf(top, other_top);
    const float kept = top == lowest() ? 0.0f : power_of_two(top - larger);
    const float added = power_of_two(other_top - larger);
    norm = fmaf(norm, kept, other_norm * added);
    total = fmaf(total, kept, other_total * added);
    top = larger;
  }
  // Merge the sink of a head, last of all, as a range without values would be.
  template <class A> __device__ void add_sink(const float* sinks, int head) {
    if (!A::SINKS) return;
    const float power = sinks[head] * LOG2_E, least = ceilf(power);
    add(least, exp2f(power - least), 0.0f);
  }
  __device__ float value() const { return top == lowest() ? 0.0f : total / norm; }
};

} // namespace optc
#endif
