"""Keeps finished answers, so that a request that comes again need not be computed."""
