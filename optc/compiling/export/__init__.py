"""Checkpoints of other tools, written from artifacts."""
