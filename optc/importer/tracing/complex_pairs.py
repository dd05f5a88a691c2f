"""Complex numbers as pairs of reals while a model is exported: ONNX has no complex arithmetic.

Rotary embeddings multiply pairs of dimensions as complex numbers by ones of length 1. While
`real_pairs` lasts, PyTorch's functions that make complex tensors give a `Pair` instead, which knows
what such code does with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pair:
    """A complex tensor as its real and its imaginary part, of one shape."""

    real: Tensor
    imag: Tensor

    def __mul__(self, other: Pair | Tensor | float) -> Pair:
        """The product with complex or real numbers."""
        if not isinstance(other, Pair):
            return Pair(self.real * other, self.imag * other)
        return Pair(
            self.real * other.real - self.imag * other.imag,
            self.real * other.imag + self.imag * other.real,
        )

    __rmul__ = __mul__

    def __getitem__(self, index: Any) -> Pair:
        """The same elements of both parts."""
        return Pair(self.real[index], self.imag[index])

    @property
    def device(self) -> torch.device:
        """Of both parts."""
        return self.real.device

    @property
    def shape(self) -> torch.Size:
        """Of both parts."""
        return self.real.shape

    def unsqueeze(self, dim: int) -> Pair:
        """One axis more; axes count from the front."""
        return Pair(self.real.unsqueeze(dim), self.imag.unsqueeze(dim))

    def to(self, *args: Any, **kwargs: Any) -> Pair:
        """Both parts, elsewhere."""
        return Pair(self.real.to(*args, **kwargs), self.imag.to(*args, **kwargs))


def _polar(length: Tensor, angle: Tensor) -> Pair:
    return Pair(length * angle.cos(), length * angle.sin())


def _view_as_complex(pairs: Tensor) -> Pair:
    return Pair(pairs[..., 0], pairs[..., 1])


def _view_as_real(value: Pair) -> Tensor:
    return torch.stack([value.real, value.imag], dim=-1)


_INSTEAD = {
    "polar": _polar,
    "view_as_complex": _view_as_complex,
    "view_as_real": _view_as_real,
}


@contextmanager
def real_pairs() -> Iterator[None]:
    """While it lasts, no complex tensor is made."""
    kept = {name: getattr(torch, name) for name in _INSTEAD}
    for name, function in _INSTEAD.items():
        setattr(torch, name, function)
    try:
        yield
    finally:
        for name, function in kept.items():
            setattr(torch, name, function)
