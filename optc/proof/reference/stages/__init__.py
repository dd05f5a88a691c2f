"""Stages of a block: layers that run at once, and what is computed between them."""
