"""Predictions for a compile before it runs: bytes of the artifact, and time."""
