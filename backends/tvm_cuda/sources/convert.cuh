// Conversions that the hardware has an instruction for (PTX ISA, sm_80 and later), by which device
// code needs no header of CUDA's for narrow floats.
#ifndef OPTC_CONVERT_CUH
#define OPTC_CONVERT_CUH
namespace optc {

// Two floats rounded to bfloat16, ties to even, as one word, the first in the low half.
__device__ __forceinline__ unsigned bf16_pair(float low, float high) {
  unsigned word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

// The value of float16 bits.
__device__ __forceinline__ float half_float(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;\n" : "=f"(value) : "h"(bits));
  return value;
}

} // namespace optc
#endif
