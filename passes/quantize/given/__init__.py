"""Weights of checkpoints that are quantized already."""
