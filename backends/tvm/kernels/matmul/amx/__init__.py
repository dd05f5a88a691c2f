"""Tiles of AMX, and the matmuls of many rows that are made of them."""
