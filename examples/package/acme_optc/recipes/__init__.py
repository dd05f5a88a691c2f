"""Recipes: the YAML files of this folder."""
