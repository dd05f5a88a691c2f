"""Rounding as arithmetic: grids, GPTQ, rotations and choices, on arrays alone."""
