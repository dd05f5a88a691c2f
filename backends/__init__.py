"""Backends: one folder each; they are found by name through entry points."""
