"""Batched tensors: the form of models that are no decoders (encoders, vision, audio)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.forms.form import Form


@dataclass(frozen=True)
class NamedTensor:
    """An input or output.

    Attributes:
        name: Its name.
        dtype: ONNX type, such as ``FLOAT``.
        dims: Sizes, and names of dynamic axes; an axis of one name has one size everywhere.
    """

    name: str
    dtype: str
    dims: tuple[int | str, ...]


@dataclass(frozen=True)
class BatchedTensors(Form):
    """Named inputs with named dynamic axes, and outputs computed from these alone.

    Attributes:
        inputs: In order.
        outputs: In order.
    """

    name: ClassVar[str] = "batched-tensors"
    title: ClassVar[str] = "a model of batched tensors"
    made_by: ClassVar[str] = "state it with BatchedTensors.describe(model).attach(model)"

    inputs: tuple[NamedTensor, ...]
    outputs: tuple[NamedTensor, ...]

    @classmethod
    def describe(cls, model: ir.Model) -> Self:
        """The form that the inputs and outputs of ``model`` have.

        Raises:
            InputError: One of them has no type or no shape, or a dynamic axis without a name.
        """
        graph = model.graph
        return cls(tuple(map(_tensor, graph.inputs)), tuple(map(_tensor, graph.outputs)))

    @classmethod
    def parse(cls, model: ir.Model, stated: Mapping[str, Any]) -> Self:
        """The form from the graph, which says it all."""
        return cls.describe(model)

    def check(self, model: ir.Model) -> None:
        """The graph's inputs and outputs are these."""
        if type(self).describe(model) != self:
            raise InputError("inputs or outputs have changed", where="form", hint=self.made_by)


def _tensor(value: ir.Value) -> NamedTensor:
    if value.dtype is None or value.shape is None:
        raise InputError("it has no type or no shape", where=f"tensor {value.name}")
    dims = [dim if isinstance(dim, int) else dim.value for dim in value.shape]
    if None in dims:
        raise InputError(
            f"axis {dims.index(None)} is dynamic and has no name",
            where=f"tensor {value.name}",
            hint="name it in the export (dynamic_shapes)",
        )
    return NamedTensor(str(value.name), value.dtype.name, tuple(d for d in dims if d is not None))
