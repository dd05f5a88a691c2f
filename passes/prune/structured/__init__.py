"""Whole structures are taken out of a model: sub-layers, heads with their keys and values, neurons.

`channels` and `sublayers` find what can go; `choose`, `obs` and `variants` say what does; `refit`
fits what is left; `cut` rewrites the graph, and `check` checks it.
"""
