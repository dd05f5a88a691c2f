"""Options that add passes to a recipe."""
