"""Engines of a lowered model, built by their backends."""
