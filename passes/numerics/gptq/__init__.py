"""GPTQ: weights rounded one input after the other, the rest making up for each rounding error.

Frantar et al., 2023 (arXiv:2210.17323): of all layers' results W x, with H = E[x xᵀ] over a text,
the squared error is tr(E H Eᵀ), E = W - Q. Rounding one column leaves an error that the columns not
yet rounded can make up for in part, by least squares; `factor` holds what that takes, `rows`
rounds.
"""
