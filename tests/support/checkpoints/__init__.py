"""Checkpoints of other formats, and what they say."""
