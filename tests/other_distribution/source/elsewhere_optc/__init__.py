"""A pass of each kind, an operator, a recipe and a backend, none of which optc knows by name."""
