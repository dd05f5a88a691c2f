"""Checkpoints that are quantized already, written by their formats."""
