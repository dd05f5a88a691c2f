"""Vision transformers beside other engines."""
