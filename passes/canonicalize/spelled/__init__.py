"""Attention that is spelled out in standard operators, and what its scores are found to be."""
