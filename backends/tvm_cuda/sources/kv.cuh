// Rotary embedding, norms and rotation of heads, the write of K and V into the paged pools, and
// copies of slots. A warp works on one head of one row.
#ifndef OPTC_KV_CUH
#define OPTC_KV_CUH
namespace optc {

constexpr int KV_WARPS = 8;

// Copy a head's DIM values to shared memory, RMS-normalized if NORM.
template <int DIM, bool NORM>
__device__ void fetch_head(float* head, const float* x, const float* scale, unsigned epsilon) {
  float factor = 1.0f;
  if (NORM) {
    float squares = 0.0f;
    for (int i = lane(); i < DIM; i += WARP) squares = fmaf(x[i], x[i], squares);
    factor = inverse_root(warp_sum(squares) / (float)DIM, epsilon);
  }
  for (int i = lane(); i < DIM; i += WARP) head[i] = NORM ? x[i] * factor * scale[i] : x[i];
  __syncwarp();
}

// Rotate the first R values in place; pair i is (i, i + R/2), or (2i, 2i + 1) if INTERLEAVED.
template <int R, bool INTERLEAVED>
__device__ void rotate_head(float* head, const float* cos, const float* sin) {
  for (int i = lane(); i < R / 2; i += WARP) {
    const int first = INTERLEAVED ? 2 * i : i, second = INTERLEAVED ? 2 * i + 1 : i + R / 2;
    const float a = head[first], b = head[second], c = cos[i], s = sin[i];
    head[first] = fmaf(a, c, -b * s);
    head[second] = fmaf(b, c, a * s);
  }
  __syncwarp();
}

// H over √BLOCK of each BLOCK values; a BLOCK of 0 leaves them as they are.
template <int DIM, int BLOCK> __device__ void rotate_blocks(float* head) {
  if constexpr (BLOCK > 0) {
    static_assert(DIM % BLOCK == 0, "blocks lie within heads");
    Row<DIM, WARP> values;
    values.read(head);
    rotate_whole<BLOCK>(values);
    values.write(head);
    __syncwarp();
  }
}

template <class Pool, int DIM> __device__ float pool_scale(const float* head) {
  if (!Pool::SCALED) return 1.0f;
  float top = 0.0f;
  for (int i = lane(); i < DIM; i += WARP) top = fmaxf(top, fabsf(head[i]));
  top = warp_max(top);
  return top == 0.0f ? 1.0f : top / 127.0f;
}

// One token's key (V false) or value of a KV head into its slot.
template <class Pool, int KV_HEADS, int DIM, bool V>
__device__ void write_head(typename Pool::Element* pool, const float* head, int slot, int h) {
  auto* tile = pool + tile_start<Pool, KV_HEADS, DIM>(slot / TILE, h);
  const int offset = slot % TILE;
  const float scale = pool_scale<Pool, DIM>(head);
  for (int i = lane(); i < DIM; i += WARP)
    tile[V ? v_element<Pool, DIM>(offset, i) : k_element<Pool>(offset, i)] =
        Pool::encode(head[i], scale);
  if (Pool::SCALED && lane() == 0) tile_scales<DIM>(tile)[offset] = scale;
}

template <class Pool, int HEADS, int KV_HEADS, int DK, int DV, int R, bool INTERLEAVED,
    bool Q_NORM, bool K_NORM, unsigned EPSILON, int GROUP, int BLOCK>
__device__ void rotary_kv(const float* qkv, const float* cos, const float* sin,
    const float* q_scale, const float* k_scale, const int* slots, typename Pool::Element* k_pool,
    typename Pool::Element* v_pool, float* q, int rows) {
  __shared__ __align__(16) float heads[KV_WARPS][DK > DV ? DK : DV];
  constexpr int K_START = HEADS * DK, V_START = K_START + KV_HEADS * DK;
  constexpr int ROW = V_START + KV_HEADS * DV;
  const int row = blockIdx.x, slot = slots[(long long)GROUP * rows + row];
  const float* x = qkv + (long long)row * ROW;
  const float *c = cos + (long long)row * (R / 2), *s = sin + (long long)row * (R / 2);
  float* head = heads[warp()];
  for (int h = warp(); h < HEADS + 2 * KV_HEADS; h += KV_WARPS) {
    __syncwarp(); // the head before was read by every lane
    if (h < HEADS) {
      fetch_head<DK, Q_NORM>(head, x + h * DK, q_scale, EPSILON);
      rotate_head<R, INTERLEAVED>(head, c, s);
      rotate_blocks<DK, BLOCK>(head);
      for (int i = lane(); i < DK; i += WARP)
        q[((long long)row * HEADS + h) * DK + i] = head[i];
    } else if (slot >= 0 && h < HEADS + KV_HEADS) {
      fetch_head<DK, K_NORM>(head, x + h * DK, k_scale, EPSILON);
      rotate_head<R, INTERLEAVED>(head, c, s);
      rotate_blocks<DK, BLOCK>(head);
      write_head<Pool, KV_HEADS, DK, false>(k_pool, head, slot, h - HEADS);
    } else if (slot >= 0) {
      const int v = h - HEADS - KV_HEADS;
      fetch_head<DV, false>(head, x + V_START + v * DV, nullptr, 0u);
      write_head<Pool, KV_HEADS, DV, true>(v_pool, head, slot, v);
    }
  }
}

template <int HEADS, int DIM, int R, bool INTERLEAVED>
__device__ void rotary(const float* x, const float* cos, const float* sin, float* out) {
  __shared__ float heads[KV_WARPS][DIM];
  const long long row = blockIdx.x;
  float* head = heads[warp()];
  for (int h = warp(); h < HEADS; h += KV_WARPS) {
    __syncwarp();
    fetch_head<DIM, false>(head, x + (row * HEADS + h) * DIM, nullptr, 0u);
    rotate_head<R, INTERLEAVED>(head, cos + row * (R / 2), sin + row * (R / 2));
    for (int i = lane(); i < DIM; i += WARP) out[(row * HEADS + h) * DIM + i] = head[i];
  }
}

template <class Pool, int KV_HEADS, int DK, int DV, int GROUP>
__device__ void write_kv(const float* k, const float* v, const int* slots,
    typename Pool::Element* k_pool, typename Pool::Element* v_pool, int rows) {
  const long long row = blockIdx.x;
  const int slot = slots[(long long)GROUP * rows + row];
  if (slot < 0) return;
  for (int h = warp(); h < KV_HEADS; h += KV_WARPS) {
    write_head<Pool, KV_HEADS, DK, false>(k_pool, k + (row * KV_HEADS + h) * DK, slot, h);
    write_head<Pool, KV_HEADS, DV, true>(v_pool, v + (row * KV_HEADS + h) * DV, slot, h);
  }
}

template <class Pool, int KV_HEADS, int DIM, bool V>
__device__ void copy_head(typename Pool::Element* pool, int from, int to, int h) {
  const auto* source = pool + tile_start<Pool, KV_HEADS, DIM>(from / TILE, h);
  auto* target = pool + tile_start<Pool, KV_HEADS, DIM>(to / TILE, h);
  for (int i = lane(); i < DIM; i += WARP) {
    const int a = V ? v_element<Pool, DIM>(from % TILE, i) : k_element<Pool>(from % TILE, i);
    const int b = V ? v_element<Pool, DIM>(to % TILE, i) : k_element<Pool>(to % TILE, i);
    target[b] = source[a];
  }
  if (Pool::SCALED && lane() == 0)
    tile_scales<DIM>(target)[to % TILE] = tile_scales<DIM>(source)[from % TILE];
}

// Pairs of slots are copied one after another by the warp of their KV head: the target of one may
// be the source of a later one.
template <class Pool, int KV_HEADS, int DK, int DV>
__device__ void copy_kv(const int* sources, const int* targets, typename Pool::Element* k_pool,
    typename Pool::Element* v_pool, int count) {
  const int h = blockIdx.x;
  for (int pair = 0; pair < count; ++pair) {
    copy_head<Pool, KV_HEADS, DK, false>(k_pool, sources[pair], targets[pair], h);
    copy_head<Pool, KV_HEADS, DV, true>(v_pool, sources[pair], targets[pair], h);
    __syncwarp();
  }
}

// A whole tile of a KV head, its scales included, by a warp.
template <class Pool, int KV_HEADS, int DIM>
__device__ void copy_tile(typename Pool::Element* pool, int from, int to, int h) {
  const auto* source = pool + tile_start<Pool, KV_HEADS, DIM>(from, h);
  auto* target = pool + tile_start<Pool, KV_HEADS, DIM>(to, h);
  for (int i = lane(); i < tile_width<Pool>(DIM); i += WARP) target[i] = source[i];
}

// Copies for the paths of trees, a block of threads a KV head: whole tiles, then single slots. No
// target is a source; pairs of -1 are padding. tiles i32 [G, 2, N], slots i32 [G, 2, M].
template <class Pool, int KV_HEADS, int DK, int DV, int GROUP>
__device__ void tree_kv(const int* tiles, const int* slots, typename Pool::Element* k_pool,
    typename Pool::Element* v_pool, int tile_pairs, int slot_pairs) {
  const int h = blockIdx.x;
  tiles += (long long)GROUP * 2 * tile_pairs;
  slots += (long long)GROUP * 2 * slot_pairs;
  for (int pair = warp(); pair < tile_pairs; pair += KV_WARPS) {
    const int from = tiles[pair], to = tiles[tile_pairs + pair];
    if (from < 0) continue;
    copy_tile<Pool, KV_HEADS, DK>(k_pool, from, to, h);
    copy_tile<Pool, KV_HEADS, DV>(v_pool, from, to, h);
  }
  __syncthreads(); // slots of a path lie in tiles that were copied
  for (int pair = warp(); pair < slot_pairs; pair += KV_WARPS) {
    const int from = slots[pair], to = slots[slot_pairs + pair];
    if (from < 0) continue;
    copy_head<Pool, KV_HEADS, DK, false>(k_pool, from, to, h);
    copy_head<Pool, KV_HEADS, DV, true>(v_pool, from, to, h);
  }
}

} // namespace optc
#endif
