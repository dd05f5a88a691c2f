"""Weights and Hessians for tests of pruning, and what a pruned weight loses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]


def correlated(columns: int, seed: int = 0) -> Float64:
    """E[x xᵀ] of inputs most of whose energy lies in a quarter of the dimensions."""
    draw = np.random.default_rng(seed)
    few = max(1, columns // 4)
    x = draw.normal(size=(columns, few)) @ draw.normal(size=(few, 4 * columns))
    x = 0.3 * x + draw.normal(size=x.shape) * np.exp(0.5 * draw.normal(size=(columns, 1)))
    return np.asarray(x @ x.T / x.shape[1])


def deficient(columns: int, tokens: int, seed: int = 3) -> Float64:
    """E[x xᵀ] of fewer tokens than inputs, three of which are always zero."""
    x = np.random.default_rng(seed).normal(size=(columns, tokens))
    x[[0, columns // 2, columns - 1]] = 0.0
    return np.asarray(x @ x.T / tokens)


def weight(rows: int, columns: int, seed: int = 1) -> Float32:
    return (np.random.default_rng(seed).standard_t(5, (rows, columns)) * 0.02).astype(np.float32)


def damped(hessian: Float64) -> Float64:
    """H + 0.01 mean(diag H) I, ones where an input is always zero."""
    found = hessian.copy()
    dead = hessian.diagonal() == 0
    found[dead, dead] = 1.0
    return found + 0.01 * found.diagonal().mean() * np.eye(len(found))


def loss(pruned: npt.ArrayLike, w: Float32, hessian: Float64) -> float:
    """tr(E H Eᵀ)."""
    error = np.asarray(pruned, np.float64) - w
    return float(np.einsum("nk,kl,nl->", error, hessian, error))
