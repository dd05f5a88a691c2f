"""Compiles pipelines of diffusers, which make images of noise."""
