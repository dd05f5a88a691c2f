"""Checkpoints that PyTorch pickled: read as data, and in a process of their own."""
