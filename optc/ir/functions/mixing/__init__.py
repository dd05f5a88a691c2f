"""Bodies of the operators whose rows depend on other tokens: attention of each kind, and
convolutions along the tokens."""
