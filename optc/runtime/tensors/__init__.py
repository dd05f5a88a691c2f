"""Runs engines of named tensors."""
