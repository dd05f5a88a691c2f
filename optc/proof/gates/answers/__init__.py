"""Answers of conversations: how far an engine's are from the reference's, and which decisions flip
(ADR 0148)."""
