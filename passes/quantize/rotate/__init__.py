"""Rotations that spread outliers over all channels; the model's function stays.

`rotate` turns the residual stream: `hadamard` makes the matrices, `residual` finds who writes and
reads it. `rotate_activations` turns what linear layers read just before it is quantized: `readers`
finds the inputs, `rotated_rows` turns the weights. `rotate_kv` turns keys, queries and values:
`values` turns these in the weights.
"""
