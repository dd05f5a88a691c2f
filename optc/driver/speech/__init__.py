"""Compiles models of speech."""
