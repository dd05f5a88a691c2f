"""The common part of the passes that rotate values in blocks while the engine runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.forms.decoder import Dense
from optc.ir.forms.form import Form
from optc.ir.forms.packed import PackedRows
from optc.ir.functions import make_node
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Phase
from optc.passes.quantize.quantize_weights import QuantizeWeights, quantize_behind
from optc.runtime.executable.block_hadamard import BLOCKS


@dataclass(frozen=True)
class InBlocks(Pass):
    """A pass that rotates in Hadamard blocks for the ``quantize-weights`` behind it.

    Attributes:
        block: The largest size of a block, 256, 64 or 16. 0: nothing is rotated, for engines that
            quantize no activations.
    """

    phase: ClassVar[Phase] = Phase.BASIS
    takes: ClassVar[tuple[type[Form], ...]] = (Dense, PackedRows)

    block: int = BLOCKS[-1]

    def __post_init__(self) -> None:
        """Refuse sizes that no engine has.

        Raises:
            InputError: ``block`` is none of them.
        """
        self.check_option("block", (0, *BLOCKS))

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            InputError: No ``quantize-weights`` comes behind it.
        """
        report = PassReport()
        if self.block:
            quantize = quantize_behind(self, context.later, floats=True)
            self.rotate(model, quantize, context.later, report)
        return report

    def rotate(
        self,
        model: ir.Model,
        quantize: QuantizeWeights,
        later: Sequence[Pass],
        report: PassReport,
    ) -> None:
        """Rewrite ``model`` in place and note in ``report`` what was done."""
        raise NotImplementedError  # pragma: no cover - abstract


def rotation_node(
    model: ir.Model, x: ir.Value, block: int, width: int, *, inverse: bool = False
) -> ir.Node:
    """A node that rotates ``x`` [..., width], or rotates it back; the caller inserts it."""
    attributes = {"block": block, "width": width, "inverse": int(inverse)}
    name = f"{x.name}.{'rotated_back' if inverse else 'rotated'}"
    node = make_node(model, "BlockHadamard", [x], attributes, outputs=[name], name=name)
    node.outputs[0].shape, node.outputs[0].type = x.shape, x.type
    return node
