"""How results, plans, artifacts and reports look in a notebook."""
