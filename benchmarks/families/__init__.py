"""Tiny random models of every causal-LM type of transformers, through import, passes and engine."""
