"""Compiles generators of text."""
