"""Tokens that a text does not use are dropped from embedding and head."""
