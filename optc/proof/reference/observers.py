"""Observers of the reference: they see each block's values, and may rewrite the block.

`BlockwiseReference.run` takes all windows through one block before it goes on to the next. An
observer is shown the values that it asks for, one chunk of windows after the other. It may then
give the block other weights: the block runs again with these, and all later blocks see its new
results. That is what block-sequential quantization needs (GPTQ: Frantar et al., 2023).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import onnx_ir as ir

from optc.ir.linear import Linear, find_linear
from optc.proof.reference.partition import Block
from optc.proof.reference.submodel import Array


@dataclass(frozen=True)
class BlockValues:
    """The values of one chunk of windows in one block, as an observer is shown them.

    Attributes:
        block: The block.
        windows: Which windows of the run these are.
        values: Arrays [w, S, ...] in float32 by value, computed with the rewritten earlier blocks
            and the block's own unchanged weights.
        original: The same values with no block rewritten. They are the arrays of ``values``
            themselves unless the run keeps the original stream.
    """

    block: Block
    windows: slice
    values: Mapping[ir.Value, Array]
    original: Mapping[ir.Value, Array]


class BlockObserver(Protocol):
    """Sees values within the blocks of a model while it runs once over windows of tokens."""

    def watched(self, block: Block) -> Sequence[ir.Value]:
        """The values of ``block`` to be shown: its source, its result, or values within it."""
        ...

    def on_values(self, seen: BlockValues) -> None:
        """Take the values of one chunk; the arrays are valid during the call."""
        ...

    def rewrite(self, block: Block) -> Mapping[ir.Value, Array]:
        """Other contents of the block's weights, by initializer; empty if nothing changes.

        Called once for each block, after its last chunk. A weight that the graph sees transposed
        is given by rows [N, K], as `LazyWeight.read_rows` has it; every other as the graph sees
        it. Both are float32.
        """
        ...


class Watcher:
    """Base of observers that rewrite nothing."""

    def rewrite(self, block: Block) -> Mapping[ir.Value, Array]:
        """Nothing changes."""
        return {}


def linears_of(block: Block) -> list[Linear]:
    """The linear layers of ``block``, in graph order."""
    return [linear for node in block.nodes if (linear := find_linear(node)) is not None]


def all_watched(observers: Iterable[BlockObserver], block: Block) -> list[ir.Value]:
    """The values of ``block`` that any of the observers watches, each once."""
    return list(dict.fromkeys(value for one in observers for value in one.watched(block)))
