"""Passes that take weights out of a model."""
