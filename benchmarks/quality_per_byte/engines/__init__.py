"""Whole engines on real models: with the activations and the KV that each really runs."""
