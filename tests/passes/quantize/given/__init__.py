"""Tests of weights that are quantized already."""
