"""Bisection: its parts on tiny models."""
