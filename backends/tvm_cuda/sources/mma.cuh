// Instructions of the tensor cores and asynchronous copies (PTX ISA, sm_80 and later). A fragment's
// layout: of A [16, k], lane l has rows l/4 and l/4 + 8; of B [k, 8] column l/4; both words l%4 and
// l%4 + 4 along k; of C [16, 8] rows l/4 and l/4 + 8, columns 2*(l%4) and the next.
#ifndef OPTC_MMA_CUH
#define OPTC_MMA_CUH
namespace optc {

// c [16, 8] += a int8 [16, 32] * b int8 [32, 8].
__device__ __forceinline__ void mma_int8(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// c [16, 8] += a bf16 [16, 16] * b bf16 [16, 8].
__device__ __forceinline__ void mma_bf16(
    float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Start copying 16 bytes to shared memory; zeros if not valid, and the source is not read.
__device__ __forceinline__ void copy_async(void* shared, const void* source, bool valid) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(shared);
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(source),
      "r"(bytes));
}

__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;\n" ::); }

// Wait until all but the last PENDING groups of this thread's copies have arrived.
template <int PENDING> __device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING));
}

} // namespace optc
#endif
