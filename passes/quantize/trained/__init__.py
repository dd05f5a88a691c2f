"""Weights that were trained: they take the place of the model's own."""
