"""CUDA engines of the TVM backend: kernels in CUDA C++, their compilation, loading on a device."""
