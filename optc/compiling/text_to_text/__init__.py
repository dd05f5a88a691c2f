"""Compiles models that turn texts into texts."""
