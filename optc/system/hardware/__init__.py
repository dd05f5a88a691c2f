"""The machine: CPU, caches, targets, and the CUDA driver."""
