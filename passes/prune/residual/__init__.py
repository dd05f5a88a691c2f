"""The residual stream of a model made narrower: turned to its principal components, then cut.

`moments` finds these on a text; `narrow` cuts the graph; `fit` fits what is left; the pass is in
`prune_residual`.
"""
