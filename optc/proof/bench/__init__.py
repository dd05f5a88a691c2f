"""Throughput and latency of a loaded engine."""
