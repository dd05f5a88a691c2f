"""Tests of benchmarks.models."""
