"""The number of drafts that pays: what steps cost, how often drafts hold, and the choice."""
