"""Gates of models of named tensors."""
