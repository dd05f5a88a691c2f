"""Residual streams beside one another, stacked along an axis of their own, become values of their
own."""
