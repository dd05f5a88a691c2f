"""Additions to a model that lie beside it: heads, layers that draft, trained weights."""
