"""Sound as models of speech take it, and the conventions of their tokens."""
