"""Modules of PyTorch: how they are called, and which of their results are outputs."""
