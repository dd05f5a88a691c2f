"""Kernels and engines for AVX-VNNI: real code, whose products of bytes a model in C computes where
the processor has none."""
