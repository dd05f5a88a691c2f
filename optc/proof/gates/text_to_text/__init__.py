"""Measures of models that turn texts into texts."""
