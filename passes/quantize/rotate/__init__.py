"""Rotations that spread outliers over all channels; the model's function stays.

`hadamard` makes the matrices; `residual` finds who writes and reads the residual stream; the pass
is in `rotate`.
"""
