"""Weights that make up for what quantizing the layers before them did to their inputs.

`targets` says which weights those are; `sums` collects what that takes from both runs of the
reference; `replace` quantizes stage after stage; the pass is in `propagate_errors`.
"""
