"""Measurements; each is a command. Figures are medians of interleaved rounds."""
