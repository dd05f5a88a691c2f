"""Recipes: named pipelines with their gates, and what options of a compile add to them."""
