"""Graph passes, one a file, grouped by what they do."""
