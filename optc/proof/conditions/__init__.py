"""Conditions on figures, their verdicts, and summaries of both for reports of a pipeline.

What is compared are plain names and numbers; who measures them knows this package, never the other
way round.
"""
