"""Which requests run in the next step, and how many of their tokens."""
