"""Attention by tiles of AMX: products of queries and keys, and of softmax weights and values."""
