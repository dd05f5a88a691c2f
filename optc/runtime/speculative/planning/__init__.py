"""How many drafts pay: what steps cost, how often drafts hold, and the choice between them."""
