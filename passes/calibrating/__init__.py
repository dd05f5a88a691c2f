"""Common parts of passes that learn from a text: reading it, finding results again, costs."""
