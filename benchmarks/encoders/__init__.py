"""Encoders of sentences beside other engines."""
