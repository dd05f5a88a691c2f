"""Decoders that attend to an encoder: what they have beside other decoders."""
