"""Proofs of models of speech."""
