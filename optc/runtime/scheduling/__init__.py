"""The choice of the requests that run in the next step, and of how many of their tokens."""
