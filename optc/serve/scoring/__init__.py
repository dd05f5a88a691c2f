"""Texts in order for a query, scores of pairs of texts, classes of texts and images (ADR 0181)."""
