"""A part of a model, ready to be run: what references, calibrations and variants are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from optc.proof.reference.execution.device import device_now

if TYPE_CHECKING:
    from optc.proof.reference.execution.torch_part import TorchPart


def open_part(
    model: ir.Model,
    nodes: Iterable[ir.Node],
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    threads: int,
) -> TorchPart:
    """The nodes as a part from ``inputs`` to ``outputs``, on the device that `running_on` names.

    Args:
        model: The model that they are of.
        nodes: In topological order; constants that they read come along.
        inputs: Values that every run is given; an initializer of a linear layer by rows.
        outputs: Values that it gives.
        threads: Threads of a CPU.

    Raises:
        ValueError: The nodes read a value that they are not given.
    """
    from optc.proof.reference.execution.torch_part import TorchPart

    return TorchPart(model, nodes, inputs, outputs, threads, device_now())
