"""Pruning of single weights: which become zero, and how the others make up for it.

`amounts` says how many, `masks` which have the largest scores; `scores`, `sparsegpt` and `admm` are
the methods, pure functions of a weight and the Hessian of its inputs, and `least_squares` fits what
is left; `layers` does that to the layers that read one input, and the pass is in `prune_weights`.
"""
