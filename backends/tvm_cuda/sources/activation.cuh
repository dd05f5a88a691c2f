// Activations, gated ones included, and element-wise operations.
#ifndef OPTC_ACTIVATION_CUH
#define OPTC_ACTIVATION_CUH
namespace optc {

__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }
__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float gelu(float x) {
  return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
}
__device__ __forceinline__ float gelu_tanh(float x) {
  const float cubed = fmaf(0.044715f, x * x * x, x);
  return 0.5f * x * (1.0f + tanhf(cubed * 0.79788456080286536f));
}

struct Silu { static __device__ float of(float x, float) { return silu(x); } };
struct Gelu { static __device__ float of(float x, float) { return gelu(x); } };
struct GeluTanh { static __device__ float of(float x, float) { return gelu_tanh(x); } };
struct Tanh { static __device__ float of(float x, float) { return tanhf(x); } };
struct Sigmoid { static __device__ float of(float x, float) { return sigmoid(x); } };
struct Exp { static __device__ float of(float x, float) { return expf(x); } };
struct Erf { static __device__ float of(float x, float) { return erff(x); } };
struct Scale { static __device__ float of(float x, float c) { return x * c; } };
struct Softcap { static __device__ float of(float x, float c) { return c * tanhf(x / c); } };
struct Add { static __device__ float of(float a, float b) { return a + b; } };
struct Sub { static __device__ float of(float a, float b) { return a - b; } };
struct Mul { static __device__ float of(float a, float b) { return a * b; } };
struct Div { static __device__ float of(float a, float b) { return a / b; } };

// activation(gate) * (up + SHIFT), of floats given by their bits. ALPHA is a factor within silu's
// sigmoid; with a LIMIT the gate stays below it, and up within it on both sides.
template <class Operation, unsigned ALPHA, unsigned LIMIT, unsigned SHIFT> struct Gate {
  static __device__ float of(float gate, float up) {
    const float alpha = bits_float(ALPHA), limit = bits_float(LIMIT);
    if (LIMIT) {
      gate = fminf(gate, limit);
      up = fmaxf(fminf(up, limit), -limit);
    }
    if (SHIFT) up += bits_float(SHIFT);
    const float act =
        alpha == 1.0f ? Operation::of(gate, 0.0f) : gate / (1.0f + expf(-alpha * gate));
    return act * up;
  }
};

// gate and up lie one behind the other in a row.
template <class Gate, class R>
__device__ __forceinline__ void read_gated(R& gate, const float* gate_up) {
  const float* row = gate_up + (long long)blockIdx.x * 2 * R::WIDTH;
  R up;
  gate.read(row);
  up.read(row + R::WIDTH);
  gate.change(up, [](float a, float b) { return Gate::of(a, b); });
}

template <class Gate, int WIDTH, int THREADS>
__device__ void gated_activation(const float* gate_up, float* out) {
  Row<WIDTH, THREADS> values;
  read_gated<Gate>(values, gate_up);
  values.write(out + (long long)blockIdx.x * WIDTH);
}

template <class Gate, int WIDTH, int THREADS, int BLOCK>
__device__ void gated_activation_quantize(
    const float* gate_up, signed char* q, float* s, int* sums) {
  Row<WIDTH, THREADS> values;
  read_gated<Gate>(values, gate_up);
  store_quantized<BLOCK>(values, q, s, sums);
}

template <class Operation, int WIDTH, int THREADS, unsigned CONSTANT>
__device__ void unary(const float* a, float* out) {
  const long long base = (long long)blockIdx.x * WIDTH;
  for (int i = threadIdx.x; i < WIDTH; i += THREADS)
    out[base + i] = Operation::of(a[base + i], bits_float(CONSTANT));
}

template <class Operation, int WIDTH, int THREADS>
__device__ void binary(const float* a, const float* b, float* out) {
  const long long base = (long long)blockIdx.x * WIDTH;
  for (int i = threadIdx.x; i < WIDTH; i += THREADS)
    out[base + i] = Operation::of(a[base + i], b[base + i]);
}

} // namespace optc
#endif
