"""A part of a model, ready to be run: what references, calibrations and variants are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import onnx_ir as ir

from optc.ir.weights import Array
from optc.proof.reference.execution.device import device_now

#: Runs the parts of a dense form: ``torch``, or ``onnxruntime``, which is its oracle.
EXECUTOR = "torch"


class Part(Protocol):
    """Some nodes of a model with their weights in float32. The weight of a linear layer is held by
    rows [N, K]."""

    def hold(self, array: Array) -> Any:
        """An array that is given to many runs, as they take it fastest."""
        ...

    def run(self, given: Sequence[Any]) -> list[Array]:
        """The outputs of inputs: of arrays, or of what `hold` made of them."""
        ...

    def replace(self, weights: Mapping[ir.Value, Array]) -> None:
        """Give weights other contents.

        Raises:
            ValueError: Not a weight of the part, or another shape.
        """
        ...

    def restore(self, weights: Iterable[ir.Value]) -> None:
        """Give weights their own contents again."""
        ...


def open_part(
    model: ir.Model,
    nodes: Iterable[ir.Node],
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    threads: int,
) -> Part:
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
    if EXECUTOR == "torch":
        from optc.proof.reference.execution.torch_part import TorchPart

        return TorchPart(model, nodes, inputs, outputs, threads, device_now())
    from optc.proof.reference.execution.onnx_part import OnnxPart

    return OnnxPart(model, nodes, inputs, outputs, threads)
