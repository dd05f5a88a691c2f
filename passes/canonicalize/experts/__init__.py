"""Mixtures of experts in an exported graph: their matmuls, routers and rows."""
