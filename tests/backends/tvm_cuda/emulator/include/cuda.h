// Stands in for CUDA's header where emitted kernels are compiled for the host.
