"""The float tensors of a dense form that training may change, and which initializers share one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import is_op
from optc.ir.linear import find_linear
from optc.ir.weights import LazyWeight, RowReader, as_lazy

#: What a tensor is: rows of a linear layer (or of an embedding that shares them), rows of an
#: embedding alone, or a vector: a norm's scale or bias, a layer's bias.
Kind = Literal["linear", "embedding", "vector"]
_NORMS = ("RMSNormalization", "LayerNormalization", "HeadRMSNorm")


@dataclass(frozen=True)
class ModelTensor:
    """One tensor, however many initializers see it.

    Attributes:
        name: Of the first initializer that sees it, in the graph's order.
        kind: What it is.
        initializers: All that see it: a tied head and embedding are two of one.
        weight: The values by rows, [N, K] or [N].
    """

    name: str
    kind: Kind
    initializers: tuple[ir.Value, ...]
    weight: LazyWeight

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape by rows."""
        return tuple(self.weight.rows_shape)

    def rows(self) -> npt.NDArray[np.float32]:
        """A copy of the values by rows, float32."""
        return np.array(self.weight.read_rows(0, self.shape[0]), np.float32)

    def replace(self, read_rows: RowReader) -> None:
        """Let all initializers read other values: float32 rows of the same shape."""
        for value in self.initializers:
            old = value.const_value
            transposed = tuple(value.shape or ()) != self.shape or _is_operand_of_matmul(value)
            name = self.name if old is None else old.name or self.name
            value.const_value = LazyWeight(
                read_rows, self.shape, ir.DataType.FLOAT, name, transposed=transposed
            )


def model_tensors(model: ir.Model) -> list[ModelTensor]:
    """The tensors of a dense form: weights of linear layers, embeddings, norms and biases, in the
    order in which the graph reads them."""
    found: dict[object, list[tuple[ir.Value, Kind, LazyWeight]]] = {}
    seen: set[ir.Value] = set()
    for value, kind, weight in _reads(model):
        if value not in seen:
            seen.add(value)
            found.setdefault(_identity(value), []).append((value, kind, weight))
    return [_joined(group) for group in found.values()]


def _reads(model: ir.Model) -> Iterator[tuple[ir.Value, Kind, LazyWeight]]:
    for node in model.graph:
        linear = find_linear(node)
        if linear is not None:
            yield linear.initializer, "linear", linear.weight
            if (bias := _weight(linear.bias)) is not None and linear.bias is not None:
                yield linear.bias, "vector", bias
        elif is_op(node, "Gather") and node.inputs[0] is not None:
            if (table := _weight(node.inputs[0])) is not None:
                yield node.inputs[0], "embedding", table
        elif node.op_type in _NORMS:
            for value in node.inputs[1:]:
                if value is not None and (scale := _weight(value)) is not None:
                    yield value, "vector", scale


def _weight(value: ir.Value | None) -> LazyWeight | None:
    """The values of a float initializer; None if it is none."""
    if value is None or value.const_value is None or not value.is_initializer():
        return None
    if value.const_value.dtype != ir.DataType.FLOAT:
        return None
    return as_lazy(value.const_value)


def _identity(value: ir.Value) -> object:
    """Equal for initializers that read the same rows."""
    tensor = value.const_value
    return tensor.read_rows if isinstance(tensor, LazyWeight) else value


def _joined(group: list[tuple[ir.Value, Kind, LazyWeight]]) -> ModelTensor:
    values, kinds, weights = zip(*group, strict=True)
    return ModelTensor(
        str(values[0].name), "linear" if "linear" in kinds else kinds[0], values, weights[0]
    )


def _is_operand_of_matmul(value: ir.Value) -> bool:
    return any(is_op(node, "MatMul") for node in value.consumers())
