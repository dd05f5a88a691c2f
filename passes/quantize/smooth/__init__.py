"""Scales of channels that move difficulty between weights and activations.

`scales` computes those of SmoothQuant and candidates of AWQ; `search` chooses among these; the pass
is in `smooth`.
"""
