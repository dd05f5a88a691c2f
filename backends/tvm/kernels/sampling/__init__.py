"""Sampling on the engine: filters and draws over rows of logits."""
