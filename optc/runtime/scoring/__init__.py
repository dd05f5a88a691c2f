"""Log-probabilities of tokens that are given: of prompts, and of continuations."""
