"""Trials of codes for weights that are not evenly spaced integers."""
