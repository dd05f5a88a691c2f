"""Artifacts as models of EleutherAI's Language Model Evaluation Harness (the extra ``eval``)."""
