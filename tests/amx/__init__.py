"""Kernels and engines for AMX: real code, whose tile instructions a model in C computes where the
processor has none."""
