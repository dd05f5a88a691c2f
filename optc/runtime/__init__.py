"""The artifact runs: engines are loaded, and requests are batched over them.

It needs no compile-time package.
"""
