"""Layers between artifacts of one engine: what differs, and nothing else (ADR 0171)."""
