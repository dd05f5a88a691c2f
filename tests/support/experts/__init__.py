"""Tiny mixtures of experts: decoders, and what they compute."""
