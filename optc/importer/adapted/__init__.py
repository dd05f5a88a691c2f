"""An adapter by PEFT and its base as one model: weights are merged as they are read."""
