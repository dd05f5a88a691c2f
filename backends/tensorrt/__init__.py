"""The TensorRT backend: engines for NVIDIA GPUs, built ahead of time, also without a GPU."""
