"""Schedules of kernels: files, lookup, and the choice among measured candidates."""
