"""Decoders that attend to an encoder: requests, and the loops over engines of two kinds."""
