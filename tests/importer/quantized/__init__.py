"""Tests of safetensors checkpoints that are quantized already."""
