"""The findings of the survey about each causal-LM type of transformers."""
