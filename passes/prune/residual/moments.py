"""Principal components of the residual stream, as the norms that read it leave it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from optc.executable.executable import Int32
from optc.passes.quantize.rotate.residual import Residual
from optc.reference.observers import BlockValues
from optc.reference.partition import Block
from optc.reference.streams.floats import Float32
from optc.reference.streams.gram import TOKENS, Float64, add_gram, mirror
from optc.reference.submodel import Array
from optc.target import usable_threads


def stream_moments(model: ir.Model, tokens: Int32, residual: Residual) -> Float64:
    """E[n nᵀ] [D, D] of n = x / rms(x), x the stream before each norm that reads it, over all of
    these and all tokens of windows [W, S]."""
    from optc.reference.blockwise import observe  # brings ONNX Runtime

    norms = [*(norm for norm, _ in residual.readers), residual.last]
    observer = _Moments(x for norm in norms if norm and (x := norm.inputs[0]) is not None)
    observe(model, tokens, [observer], usable_threads())
    return observer.mean()


def principal_components(moments: Float64) -> tuple[Float64, Float64]:
    """Orthonormal columns [D, D] by how much of the moments they hold, the most first, and how much
    that is, [D]. Of two directions the one is taken whose largest element is positive."""
    held, columns = np.linalg.eigh(moments)
    columns, held = columns[:, ::-1], np.maximum(held[::-1], 0.0)
    largest = np.abs(columns).argmax(axis=0)
    signs = np.sign(columns[largest, np.arange(len(held))])
    return np.ascontiguousarray(columns * signs), held


class _Moments:
    """Sums n nᵀ of some values (a `BlockObserver` that rewrites nothing)."""

    def __init__(self, values: Iterable[ir.Value]) -> None:
        self._left = dict.fromkeys(values)
        self._total: Float64 | None = None
        self._count = 0

    def watched(self, block: Block) -> Sequence[ir.Value]:
        """Those of the values that the block reads or makes and that no block before it had."""
        made = [block.source, *(value for node in block.nodes for value in node.outputs)]
        return [value for value in made if value in self._left]

    def on_values(self, seen: BlockValues) -> None:
        """Add a chunk."""
        for value, array in seen.values.items():
            if value not in self._left:  # another observer's
                continue
            rows = array.reshape(-1, array.shape[-1]).astype(np.float32, copy=False)
            for at in range(0, len(rows), TOKENS):
                self._add(rows[at : at + TOKENS])

    def rewrite(self, block: Block) -> Mapping[ir.Value, Array]:
        """Look for the block's values no more; nothing changes."""
        for value in self.watched(block):
            del self._left[value]
        return {}

    def mean(self) -> Float64:
        """Their mean [D, D]."""
        if self._total is None:
            raise ValueError("no value was seen")
        mirror(self._total)
        mean: Float64 = self._total / self._count
        return mean

    def _add(self, rows: Float32) -> None:
        if self._total is None:
            self._total = np.zeros((rows.shape[-1],) * 2)
        squares = np.square(rows, dtype=np.float64).mean(axis=-1, keepdims=True)
        add_gram(self._total, (rows / np.sqrt(np.maximum(squares, 1e-30))).astype(np.float32))
        self._count += len(rows)
