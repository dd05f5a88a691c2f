"""Layers of tiny decoders that need more than a few lines."""
