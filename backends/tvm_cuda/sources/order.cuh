// The order of kernels, where they are launched so that one may start before those before it have
// ended (programmatic dependent launch; CUDA C++ Programming Guide, from sm_90 on): it waits before
// it touches what they write, and may read weights before. Where a launch says nothing of it, and on
// older devices, nothing has to wait.
#ifndef OPTC_ORDER_CUH
#define OPTC_ORDER_CUH
namespace optc {

// The next kernel may start once all blocks of this one have come here.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// All kernels before this one have ended, and what they wrote is seen.
__device__ __forceinline__ void wait_for_kernels_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

} // namespace optc
#endif
