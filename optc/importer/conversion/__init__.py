"""Tensors of a checkpoint as the parameters of the model's class: renamed, stacked, cut, lazily."""
