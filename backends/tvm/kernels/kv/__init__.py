"""Kernels that write into the KV pools, and rotate, copy or move what is in them."""
