"""Formats of weights under a budget: which tensor gets how many bits.

`formats` names what a weight may be stored in, `amounts` says what a budget is, `sensitivity` what
each choice loses, `knapsack` chooses; the pass is in `allocate_bits`.
"""
