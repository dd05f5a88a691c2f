// Embedding lookup, from a table of its own or from the packed weight of a tied head, and gathers
// of rows; heads of two values side by side. A block of threads writes one row.
#ifndef OPTC_EMBEDDING_CUH
#define OPTC_EMBEDDING_CUH
namespace optc {

template <int WIDTH> __device__ void gather_rows(const float* x, const int* rows, float* out) {
  const float* source = x + (long long)rows[blockIdx.x] * WIDTH;
  for (int i = threadIdx.x; i < WIDTH; i += (int)blockDim.x)
    out[(long long)blockIdx.x * WIDTH + i] = source[i];
}

// a f32 [T, FIRST] of all heads, or [T, HEADS * FIRST], b f32 [T, HEADS * SECOND].
template <int HEADS, int FIRST, int SECOND, bool SHARED>
__device__ void head_concat(const float* a, const float* b, float* out) {
  constexpr int EACH = FIRST + SECOND;
  const float* first = a + (long long)blockIdx.x * (SHARED ? FIRST : HEADS * FIRST);
  const float* second = b + (long long)blockIdx.x * (HEADS * SECOND);
  float* row = out + (long long)blockIdx.x * (HEADS * EACH);
  for (int i = threadIdx.x; i < HEADS * EACH; i += (int)blockDim.x) {
    const int head = i / EACH, column = i % EACH;
    row[i] = column < FIRST ? first[(SHARED ? 0 : head * FIRST) + column]
                            : second[head * SECOND + column - FIRST];
  }
}

__device__ __forceinline__ float table_value(float value) { return value; }
__device__ __forceinline__ float table_value(unsigned short bits) { return bf16_float(bits); }

template <int WIDTH, class Element>
__device__ void embedding(const Element* table, const int* tokens, float* out) {
  const Element* source = table + (long long)tokens[blockIdx.x] * WIDTH;
  for (int i = threadIdx.x; i < WIDTH; i += (int)blockDim.x)
    out[(long long)blockIdx.x * WIDTH + i] = table_value(source[i]);
}

// w u16 [N/64, D/2, 64, 2].
template <int WIDTH>
__device__ void packed_embedding(const unsigned short* w, const int* tokens, float* out) {
  const int token = tokens[blockIdx.x];
  const long long block = (long long)(token / COLUMNS) * ceil_div(WIDTH, 2);
  for (int i = threadIdx.x; i < WIDTH; i += (int)blockDim.x) {
    const long long word = (block + i / 2) * COLUMNS + token % COLUMNS;
    out[(long long)blockIdx.x * WIDTH + i] = bf16_float(w[word * 2 + i % 2]);
  }
}

__device__ __forceinline__ float scale_value(float scale) { return scale; }
__device__ __forceinline__ float scale_value(unsigned short bits) { return half_float(bits); }

// w u8 [N/64, Kp*BITS/32, 64, 4], scales and zero points [N/64, G, 64]; GROUP 0 is per channel.
template <int WIDTH, int BITS, int GROUP, bool ZEROS, class ScaleType>
__device__ void quantized_embedding(const int* tokens, const unsigned char* w,
    const ScaleType* ws, const unsigned char* wz, float* out) {
  constexpr int WORDS = round_up(WIDTH, 32) * BITS / 32;
  constexpr int SIZE = GROUP ? GROUP : WIDTH, GROUPS = ceil_div(WIDTH, SIZE);
  const int block = tokens[blockIdx.x] / COLUMNS, column = tokens[blockIdx.x] % COLUMNS;
  for (int i = threadIdx.x; i < WIDTH; i += (int)blockDim.x) {
    const int four = i / 4, word = BITS == 8 ? four : four / 2;
    const long long place = ((long long)block * WORDS + word) * COLUMNS + column;
    const int stored = w[place * 4 + i % 4];
    const int value = BITS == 8 ? stored : (stored >> (four % 2 * 4)) & 15;
    const long long group = ((long long)block * GROUPS + i / SIZE) * COLUMNS + column;
    const int zero = ZEROS ? (int)wz[group] : 1 << (BITS - 1);
    out[(long long)blockIdx.x * WIDTH + i] = (float)(value - zero) * scale_value(ws[group]);
  }
}

} // namespace optc
#endif
