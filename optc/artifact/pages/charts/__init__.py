"""Plots as SVG: scales and frames, histogram, bars, flame, roofline, lines and points."""
