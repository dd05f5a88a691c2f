"""Rows of several values side by side: the stream between two blocks holds a hidden state and the
values that skip layers, [W, S, D + …]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from optc.ir.graph import width
from optc.proof.reference.partition import Block
from optc.proof.reference.submodel import Array


def total_width(values: Iterable[ir.Value]) -> int:
    """Columns of the values side by side.

    Raises:
        ValueError: A width is not known.
    """
    sizes = [width(value) for value in values]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        raise ValueError("the width of a value between blocks is not known")
    return sum(known)


def widest(blocks: Iterable[Block]) -> int:
    """The most columns of a stream before and behind ``blocks``; 0 where no width is known."""
    found = [0]
    for block in blocks:
        found += [total_width(values) for values in (block.given, block.gives)
                  if all(width(value) is not None for value in values)]  # fmt: skip
    return max(found)


def split_rows(rows: Array, values: Sequence[ir.Value]) -> dict[ir.Value, Array]:
    """Views of the columns of ``rows`` [W, S, …] by value; the array itself where there is one."""
    if len(values) == 1:
        return {values[0]: rows}
    ends = np.cumsum([total_width([value]) for value in values])
    parts = np.split(rows, ends[:-1], axis=-1)
    return dict(zip(values, parts, strict=True))


def join_rows(arrays: Mapping[ir.Value, Array], values: Sequence[ir.Value]) -> Array:
    """The arrays of ``values`` side by side; the array itself where there is one."""
    if len(values) == 1:
        return arrays[values[0]]
    return np.concatenate([arrays[value] for value in values], axis=-1)
