"""Kernels in TIR; README.md lists their buffers."""
