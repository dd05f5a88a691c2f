"""Predictions of what passes of quantization will take: memory, and tokens of text."""
