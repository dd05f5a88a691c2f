"""Measuring of a loaded engine under load. Needs nothing but the runtime."""

from optc.bench.load import LoadResult, measure_load

__all__ = ["LoadResult", "measure_load"]
