"""E[x xᵀ] of a text's values in int8: every input has a scale of its own, sums are exact.

One scale serves all tokens of an input, so that it can be taken out of the sums. Rare large values
would make it coarse for all others: it is bounded by the input's mean magnitude, which they hardly
move, and tokens with a value beyond it are multiplied in float32 instead.

The result is the second moment of values that were rounded, so it is positive semidefinite, as
GPTQ needs. What rounding adds to its diagonal is 1.2 % of it at most, about the damping. It is
no use in a difference of two nearly equal sums, such as E[(W x - W x') x'ᵀ].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from optc.proof.reference.streams.floats import as_float32, float32_tensor
from optc.proof.reference.streams.gram import BLOCK, Float64, add_gram, mirror
from optc.proof.reference.submodel import Array

if TYPE_CHECKING:
    import torch

#: The largest value.
LARGEST = 127
#: How many times its mean magnitude an input's largest value is, as far as its scale goes.
_SPREAD = 48.0
#: Values that are read or rounded while they lie in the cache.
_VALUES = 1 << 18
#: Tokens that are rounded, and then multiplied, at once.
TOKENS = 8192
#: Tokens whose products are summed as int32: 2^31 / 127^2 is 133,000.
_MOST_TOKENS = 1 << 17


def rounded_hessian(x: Array) -> Float64:
    """E[x xᵀ], [K, K], of inputs x [..., K] in float32 or bfloat16, rounded to int8 by columns.

    Raises:
        ValueError: There are no tokens.
    """
    import torch

    flat = x.reshape(-1, x.shape[-1])
    tokens, width = flat.shape
    if not tokens:
        raise ValueError("no tokens")
    scales, bounded = _scales(flat)
    total = np.zeros((width, width))
    sums = torch.zeros((width, width), dtype=torch.int32)
    values = torch.empty((min(TOKENS, tokens), width), dtype=torch.int8)
    for at in range(0, tokens, TOKENS):
        part = flat[at : at + TOKENS]
        large = _round(part, scales, values[: len(part)], bounded=bounded)
        _add_products(sums, values[: len(part)])
        if (at + TOKENS) % _MOST_TOKENS == 0 or at + TOKENS >= tokens:
            _add_sums(total, sums)
        if large.any():
            add_gram(total, (as_float32(part[large]) / scales.numpy()).astype(np.float32))
    mirror(total)
    steps = scales.numpy().astype(np.float64)
    total *= steps
    total *= steps[:, None]
    total /= tokens
    return total


def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a b, int32 [M, N], of int8 [M, K] and [K, N]; PyTorch 2.13 is wrong for sides of 1."""
    import torch

    if 1 in (*a.shape, *b.shape):
        return a.int() @ b.int()
    return torch._int_mm(a, b)


def _scales(flat: Array) -> tuple[torch.Tensor, bool]:
    """The size of one step of int8 in each column, float32 [K], and True if no value is beyond the
    largest that int8 has."""
    import torch

    total = torch.zeros(flat.shape[1], dtype=torch.float64)
    largest = torch.zeros(flat.shape[1])
    for rows in _tensors(flat):
        magnitudes = rows.abs()
        total += magnitudes.sum(0)
        largest = torch.maximum(largest, magnitudes.amax(0))
    bound = _SPREAD * (total / len(flat)).float()
    steps = torch.minimum(largest, bound).div_(LARGEST)
    return steps.clamp_min_(np.finfo(np.float32).tiny), bool((largest <= bound).all())


def _round(flat: Array, scales: torch.Tensor, values: torch.Tensor, *, bounded: bool) -> Array:
    """Fill ``values`` int8 [T, K]; gives which tokens [T] have a value beyond it: theirs are 0.
    Where values are ``bounded``, none has."""
    found, at = np.zeros(len(flat), np.bool_), 0
    for rows in _tensors(flat):
        part = slice(at, at + len(rows))
        steps, at = (rows / scales).round_(), part.stop
        if not bounded:
            large = steps.abs().amax(1) > LARGEST
            steps[large] = 0
            found[part] = large.numpy()
        values[part].copy_(steps)
    return found


def _add_products(sums: torch.Tensor, values: torch.Tensor) -> None:
    """Add vᵀ v of values v [T, K]: the blocks on the diagonal and above. Integers, so exactly."""
    for at in range(0, len(sums), BLOCK):
        here = values[:, at : at + BLOCK]
        sums[at : at + BLOCK, at:].add_(multiply(here.T, values[:, at:]))


def _add_sums(total: Float64, sums: torch.Tensor) -> None:
    """Add integers [K, K], which become 0. Floats, each time, would take as long as products."""
    for at in range(0, len(sums), BLOCK):
        total[at : at + BLOCK, at:] += sums[at : at + BLOCK, at:].numpy()
    sums.zero_()


def _tensors(flat: Array) -> Iterator[torch.Tensor]:
    """Some tokens at a time, in float32."""
    count = max(1, _VALUES // flat.shape[1])
    for at in range(0, len(flat), count):
        yield float32_tensor(flat[at : at + count])
