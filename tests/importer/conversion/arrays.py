"""Tensors of a checkpoint that is in memory, or of which only the shapes are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from optc.importer.conversion.tensor import Float32, Leaf, Tensor
from optc.ir.stacked_weights import Box


@dataclass(frozen=True)
class ArrayTensor:
    """A `Tensor` that is an array."""

    name: str
    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def where(self) -> str:
        return f"memory: {self.name}"

    @property
    def leaves(self) -> Sequence[Leaf]:
        return []

    @property
    def given(self) -> None:
        return None

    def read_rows(self, start: int, stop: int) -> Float32:
        return np.asarray(self.array[start:stop], np.float32)

    def read_box(self, box: Box) -> Float32:
        return np.asarray(self.array[tuple(slice(*one) for one in box)], np.float32)


def tensors(named: Mapping[str, torch.Tensor]) -> dict[str, Tensor]:
    """Of tensors of torch, on the CPU or the meta device."""
    return {name: ArrayTensor(name, one) for name, one in named.items()}


def whole(tensor: Tensor) -> Float32:
    """All numbers of it."""
    return tensor.read_box(tuple((0, size) for size in tensor.shape))
