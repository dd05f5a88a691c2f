"""Layers between artifacts: made and applied."""
