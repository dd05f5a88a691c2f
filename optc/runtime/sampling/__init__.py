"""From logits to tokens: masks, penalties, filters, noise, log-probabilities."""
