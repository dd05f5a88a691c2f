"""Compiles models of named tensors."""
