"""The inputs of an encoder, and parts of its graph run on small batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.errors import UnsupportedError
from optc.ir.forms.packed import Patches
from optc.ir.functions import is_op
from optc.ir.graph import constant
from optc.passes.canonicalize.dataflow import dims
from optc.passes.canonicalize.spelled.region import Region

Array = npt.NDArray[Any]
#: Tokens of the second sequence of a probe that are padding.
PADDING = 3


@dataclass(frozen=True)
class Source:
    """Inputs of an encoder, of texts each i64 [batch, tokens].

    Attributes:
        graph: The graph.
        ids: Looked up in the largest table; of patches their rows [batch, tokens, K].
        mask: 1 where a token is no padding; None where there is no such input.
        types: Looked up in another table; None where there is no such input.
        batch: Name of the first dimension.
        tokens: Name of the second one.
        patches: What rows are made of; None of texts.
    """

    graph: ir.Graph
    ids: ir.Value
    mask: ir.Value | None
    types: ir.Value | None
    batch: str
    tokens: str
    patches: Patches | None = None

    @classmethod
    def of(cls, graph: ir.Graph) -> Source:
        """The inputs of ``graph``.

        Raises:
            UnsupportedError: It reads something else, or texts of one length.
        """
        inputs = list(graph.inputs)
        lead = dims(inputs[0]) if inputs else []
        plain = all(v.dtype == ir.DataType.INT64 and dims(v) == lead for v in inputs)
        if not plain or len(lead) != 2 or not all(isinstance(d, str) for d in lead):
            shown = ", ".join(f"{v.name} {dims(v)}" for v in inputs)
            raise _unknown(
                f"its inputs are {shown}, neither ids [batch, tokens] of texts, nor images or "
                "sounds of one size"
            )
        tables = {v: rows for v in inputs if (rows := _looked_up(v))}
        order = sorted(tables, key=lambda v: -tables[v])
        others = [v for v in inputs if v not in tables]
        if not order or len(order) > 2 or len(others) > 1:
            raise _unknown(f"of its {len(inputs)} inputs, {len(order)} are looked up in tables")
        mask = others[0] if others else None
        types = order[1] if len(order) > 1 else None
        return cls(graph, order[0], mask, types, str(lead[0]), str(lead[1]))

    def size(self, tokens: int) -> int:
        """Tokens of a sequence of a probe that would best have so many."""
        return tokens if self.patches is None else self.patches.tokens

    def lengths(self, tokens: int) -> tuple[int, int]:
        """Tokens that are no padding, of both sequences of a probe."""
        return tokens, tokens if self.mask is None else tokens - PADDING

    def run(
        self, region: Region, tokens: int, given: Mapping[ir.Value, Array], *, seed: int = 0
    ) -> Array:
        """The result of a region for two sequences of so many tokens, the second one padded.

        Raises:
            ForeignError: It cannot be run.
        """
        rng = np.random.default_rng(seed)
        feeds: dict[ir.Value, Array] = {}
        if self.patches is None:
            feeds[self.ids] = rng.integers(3, 9, (2, tokens))
        if self.types is not None:
            feeds[self.types] = np.zeros((2, tokens), np.int64)
        if self.mask is not None:
            lengths = np.array(self.lengths(tokens))[:, None]
            feeds[self.mask] = (np.arange(tokens) < lengths).astype(np.int64)
        feeds = {v: array for v, array in feeds.items() if v in region.inputs}
        return replace(region, inputs=()).run(self.graph, tokens, {**feeds, **given})


def _looked_up(value: ir.Value) -> int:
    """Rows of the table whose rows ``value`` chooses; 0 if it chooses none."""
    for node, index in value.uses():
        table = constant(node.inputs[0]) if is_op(node, "Gather") and index == 1 else None
        if table is not None and len(table.shape) == 2:
            return int(table.shape.numpy()[0])
    return 0


def _unknown(reason: str) -> UnsupportedError:
    return UnsupportedError(
        reason,
        where="pass pack-rows",
        hint="it packs encoders of texts, images and sounds; --recipe products-int8 takes any",
    )
