"""Safetensors checkpoints that are quantized already: their packed tensors as weights."""
