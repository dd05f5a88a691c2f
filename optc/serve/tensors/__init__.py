"""Serves models of named tensors: embeddings of texts, and the Open Inference Protocol."""
