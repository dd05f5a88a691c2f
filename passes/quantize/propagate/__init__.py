"""Weights that make up for what quantizing the layers before them did to their inputs.

`targets` says which weights those are; `sums` collects what that takes from both runs of the
reference; `stages` takes the layers stage after stage, and `replace` quantizes them; the pass is in
`propagate_errors`. Pruning uses the stages, too.
"""
