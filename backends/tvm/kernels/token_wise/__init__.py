"""Kernels that compute each token's row alone: norms, activations, embeddings, adapters."""
