"""Gates of models that make images."""
