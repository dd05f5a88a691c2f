"""Recipes, found by the entry point `optc.recipes`."""
