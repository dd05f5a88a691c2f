"""The front of an encoder of images or sounds: from its input to the rows of its first layer.

A patch embedding is a convolution whose windows do not overlap: its rows are linear in the values
of patches. What stands between it and the first layer (other axes, rows that are no patches,
places) is run on numbers: it moves each patch to a row, and adds what is the same for all inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.forms.packed import Patches
from optc.ir.functions import is_op
from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import PassReport
from optc.passes.canonicalize.dataflow import dims, substitute, uses
from optc.passes.canonicalize.encoders.convolutions import TOKENS, Chain, dims_of, unknown
from optc.passes.canonicalize.encoders.source import Source
from optc.passes.canonicalize.encoders.token_axis import name_tokens
from optc.passes.canonicalize.fold_constants import FoldConstants
from optc.passes.canonicalize.spelled.region import BATCH, ForeignError, region_of

Array = npt.NDArray[Any]
Float32 = npt.NDArray[np.float32]


def source_of_patches(model: ir.Model, report: PassReport) -> Source | None:
    """Replace an input of images or sounds by rows, one for each token: `FEATURES` [batch, tokens,
    K], or several for a token. Places of tokens become an input, too.

    Returns:
        None where the model reads something else.

    Raises:
        UnsupportedError: It reads images or sounds, and its front is not recognized.
    """
    graph = model.graph
    if len(graph.inputs) != 1 or graph.inputs[0].dtype != ir.DataType.FLOAT:
        return None
    pixels = graph.inputs[0]
    shape = dims(pixels)
    fixed = all(isinstance(size, int) for size in shape[1:])
    if len(shape) not in (3, 4) or not isinstance(shape[0], str) or not fixed:
        return None
    if any(not dims(node.outputs[0]) for node in uses(pixels) if is_op(node, "Conv")):
        FoldConstants().run(model)  # infers shapes, which a graph need not state
    chain = Chain.of(model, pixels)
    place = _placed(graph, chain)
    substitute(place.result, chain.emit(model, place.table))
    _drop(model, pixels, chain.features)
    name_tokens(graph, str(shape[0]), place.tokens, TOKENS)
    report.add("front of patches")
    patches = Patches(
        str(pixels.name),
        chain.sizes,
        place.tokens,
        chain.length // math.prod(chain.grid),
        place.lead,
    )
    graph.inputs.clear()
    graph.inputs.extend([chain.features, chain.positions])
    return Source(graph, chain.features, None, None, str(shape[0]), TOKENS, patches)


@dataclass(frozen=True)
class _Place:
    """The rows that a front makes of its convolutions' result.

    Attributes:
        result: The rows of the first layer [batch, tokens, D].
        table: What is added to each row f32[tokens, D], the bias of the last convolution included.
        lead: Rows before those of patches.
    """

    result: ir.Value
    table: Float32
    lead: int

    @property
    def tokens(self) -> int:
        """Rows of a sequence."""
        return len(self.table)


def _placed(graph: ir.Graph, chain: Chain) -> _Place:
    """The last value that is made of patches by moving them and adding constants.

    Raises:
        UnsupportedError: There is none.
    """
    found: _Place | None = None
    width = dims(chain.result)[1]
    for node in graph:
        for value in node.outputs:
            shape = dims(value)
            rows = len(shape) == 3 and shape[2] == width and isinstance(shape[1], int)
            if rows and shape[0] == dims(chain.result)[0]:
                found = _place(graph, chain, value) or found
    if found is None:
        raise unknown(chain.nodes[-1], "its result does not become rows of tokens")
    return found


def _place(graph: ir.Graph, chain: Chain, value: ir.Value) -> _Place | None:
    rng, width = np.random.default_rng(4), int(dims_of(value)[2])
    shape = (BATCH, width, *chain.grid)
    moved = rng.standard_normal(shape).astype(np.float32)
    bias = np.zeros(width, np.float32) if chain.bias is None else chain.bias
    still: Float32 = np.broadcast_to(bias.reshape(-1, *[1] * len(chain.grid)), shape)
    still = np.ascontiguousarray(still)
    try:
        region = region_of(graph, value, chain.result)
        feeds: list[Mapping[ir.Value, Array]] = [
            {chain.result: one} for one in (still, still + moved)
        ]
        table, result = (region.run(graph, 0, one) for one in feeds)
    except ForeignError:
        return None
    patches = moved.reshape(BATCH, width, -1).transpose(0, 2, 1)
    gained = result - table
    lead = int(np.argmax(np.abs(gained[0]).max(axis=1) > 0))
    expected = np.zeros_like(gained)
    part = expected[:, lead : lead + patches.shape[1]]
    if part.shape != patches.shape or not np.array_equal(table[0], table[1]):
        return None
    part[:] = patches
    if not np.allclose(gained, expected, atol=1e-5):
        return None
    if lead and chain.length != patches.shape[1]:
        return None
    return _Place(value, np.ascontiguousarray(table[0], np.float32), lead)


def _drop(model: ir.Model, pixels: ir.Value, features: ir.Value) -> None:
    """Sizes of a batch are read of the new input."""
    remove_unused(model)
    for node, index in list(pixels.uses()):
        first = node.attributes.get_int("start", 0), node.attributes.get_int("end", -1)
        if not is_op(node, "Shape") or first != (0, 1):
            raise unknown(node, "it reads the input behind the front")
        node.replace_input_with(index, features)
