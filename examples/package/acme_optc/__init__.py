"""Passes and recipes of ours for optc."""
