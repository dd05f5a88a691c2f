"""Heads found by numbers: a part of the graph is run, and what it does is read off its results."""
