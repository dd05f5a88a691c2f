"""Conversations: what chat models are calibrated with and judged by (ADR 0148)."""
