"""Answers of questions that mean the same: opt-in, behind a measured rate of wrong hits (ADR
0176)."""
