"""Rewrites of weights that leave the model's function as it is.

`weights` scales and mixes rows and columns as they are read; `places` finds where a scale for each
channel can move from what gives a value into the linear layers that read it; `fold` moves it.
"""
