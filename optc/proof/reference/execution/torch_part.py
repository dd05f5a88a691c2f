"""A part of a model in PyTorch, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from optc.ir.weights import Array
from optc.proof.reference.execution.bodies import body_runner
from optc.proof.reference.execution.layout import by_rows
from optc.proof.reference.execution.program import Program, own_tensor, tensor_of
from optc.proof.reference.submodel import INLINE_ELEMENTS


class TorchPart:
    """Some nodes on PyTorch tensors, with their weights in float32; that of a linear layer is held
    by rows [N, K]. Operators that the dense form does not have run in ONNX Runtime, by the bodies
    that say what they mean.

    Args:
        model: The model that they are of.
        nodes: In topological order.
        inputs: Values that every run is given.
        outputs: Values that it gives.
        threads: Threads of a CPU.
        device: ``cpu`` or ``cuda``.
    """

    def __init__(
        self,
        model: ir.Model,
        nodes: Iterable[ir.Node],
        inputs: Sequence[ir.Value],
        outputs: Sequence[ir.Value],
        threads: int,
        device: str,
    ) -> None:
        self._device, self._threads = torch.device(device), threads
        self._inputs = tuple(inputs)
        self._program = Program(
            nodes, inputs, outputs, lambda node: body_runner(model, node, threads), _is_weight
        )
        self._weights = {
            value: own_tensor(value).to(self._device) for value in self._program.weights
        }

    def hold(self, array: Array) -> Tensor:
        """An array that is given to many runs, on the device."""
        return tensor_of(array).to(self._device)

    def run(self, given: Sequence[Array | Tensor]) -> list[Array]:
        """The outputs as arrays, of inputs as arrays or tensors."""
        torch.set_num_threads(self._threads)
        with torch.inference_mode():
            tensors = [one if isinstance(one, Tensor) else self.hold(one) for one in given]
            values = dict(zip(self._inputs, tensors, strict=True)) | self._weights
            return [_array(one) for one in self._program.run(values, self._device)]

    def replace(self, weights: Mapping[ir.Value, Array]) -> None:
        """Give weights other contents, in float32.

        Raises:
            ValueError: Not a weight of the part, or another shape.
        """
        for value, array in weights.items():
            known = self._weights.get(value)
            if known is None:
                raise ValueError(f"{value.name}: not a weight of this block")
            if array.shape != tuple(known.shape):
                raise ValueError(f"{value.name}: shape {array.shape}, not {tuple(known.shape)}")
            self._weights[value] = self.hold(np.ascontiguousarray(array, np.float32))

    def restore(self, weights: Iterable[ir.Value]) -> None:
        """Give weights their own contents again."""
        for value in weights:
            self._weights[value] = own_tensor(value).to(self._device)


def _is_weight(value: ir.Value) -> bool:
    """True of initializers that may be given other contents: large ones, and all by rows."""
    tensor = value.const_value
    if tensor is None or not value.is_initializer():
        return False
    return tensor.size > INLINE_ELEMENTS or by_rows(value)


def _array(tensor: Tensor) -> Array:
    """In memory of its own, or of nobody else: on the CPU without a copy."""
    found: Array = tensor.contiguous().cpu().numpy()
    return found
