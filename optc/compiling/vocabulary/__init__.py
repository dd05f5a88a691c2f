"""The vocabulary of a model trimmed to what the texts of a domain use."""
