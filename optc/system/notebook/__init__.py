"""The look of results, plans, artifacts and reports in a notebook."""
