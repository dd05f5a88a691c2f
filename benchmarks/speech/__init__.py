"""Models of speech beside other engines."""
