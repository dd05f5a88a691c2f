"""Hessians of linear layers: E[x xᵀ] of their inputs over a text, while the reference runs once.

The squared error of a layer's result, |W x - Q x|² on average over x, is tr((W - Q) H (W - Q)ᵀ)
with H = E[x xᵀ]. GPTQ (Frantar et al., 2023) and SparseGPT (Frantar and Alistarh, 2023) need
nothing else of the inputs. Memory holds the Hessians of one block's values: each is given away
before the next block is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from optc.proof.reference.observers import BlockValues
from optc.proof.reference.partition import Block
from optc.proof.reference.streams.gram import Float64, add_gram, mirror
from optc.proof.reference.submodel import Array

#: Takes a value and its Hessian [K, K].
Found = Callable[[ir.Value, Float64], None]


class HessianObserver:
    """Sums x xᵀ of some values, block by block (a `BlockObserver` that rewrites nothing).

    A chunk's products are float32, their sum is float64: products in bfloat16 or a float32 sum over
    many tokens need not be positive definite.

    Args:
        values: Which ones.
        found: Is given each Hessian once, after the last chunk of its block.
    """

    def __init__(self, values: Iterable[ir.Value], found: Found) -> None:
        self._left = dict.fromkeys(values)
        self._found = found
        self._sums: dict[ir.Value, tuple[Float64, int]] = {}

    def watched(self, block: Block) -> Sequence[ir.Value]:
        """Those of the values that the block reads or makes and that no block before it had."""
        made = [block.source, *(value for node in block.nodes for value in node.outputs)]
        return [value for value in made if value in self._left]

    def on_values(self, seen: BlockValues) -> None:
        """Add a chunk's products."""
        for value, array in seen.values.items():
            if value not in self._left:  # another observer's
                continue
            rows = array.reshape(-1, array.shape[-1]).astype(np.float32, copy=False)
            width = rows.shape[-1]
            total, count = self._sums.get(value, (np.zeros((width, width)), 0))
            add_gram(total, rows)
            self._sums[value] = total, count + len(rows)

    def rewrite(self, block: Block) -> Mapping[ir.Value, Array]:
        """Give the block's Hessians away; nothing changes."""
        for value, (total, count) in self._sums.items():
            mirror(total)
            total /= count
            self._found(value, total)
            del self._left[value]
        self._sums.clear()
        return {}
