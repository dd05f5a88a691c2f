"""Tests of benchmarks of requests together."""
