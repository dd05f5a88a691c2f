"""Tests of converted checkpoints."""
