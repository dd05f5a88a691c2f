"""Weights as the kernels read them: packed tiles, one file that is mapped at load."""
