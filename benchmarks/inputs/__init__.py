"""Models and tokenizers to measure with."""
