"""Products of activations with packed weights: float, 8-bit, and 4-bit with two-level scales."""
