"""Stages of a compile: the row of them, and what those of all tasks have in common."""
