"""What was proved about each causal-LM type of transformers, as the survey found it."""
