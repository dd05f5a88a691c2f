"""`compute-type`: compute in float16 or bfloat16; rotary angles stay float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import onnx_ir as ir

from optc.errors import InputError, UnsupportedError
from optc.ir.graph import add_initializer, constant, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import Array, LazyWeight

_TYPES = {
    "float16": (ir.DataType.FLOAT16, np.dtype(np.float16)),
    "bfloat16": (ir.DataType.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
    "float32": (ir.DataType.FLOAT, np.dtype(np.float32)),
}
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
#: Operators that give booleans whatever they compare.
_BOOLEAN = ("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or")


@dataclass(frozen=True)
class ComputeType(Pass):
    """All values, weights and caches of a step become of one type; the logits end in float32.

    What depends on positions alone, the angles and their cosines, is computed in float32 and
    rounded after. Norms sum in float32 by their definition (``stash_type``).

    Attributes:
        dtype: ``float16``, which refuses weights that it does not hold when they are read,
            ``bfloat16`` for models whose values exceed 65504, or ``float32``, which
            TensorRT has no fused attention for, but ONNX Runtime all operators.
    """

    name: ClassVar[str] = "compute-type"
    phase: ClassVar[Phase] = Phase.ENGINE
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS | Effect.SETS_COMPUTE_TYPE
    required: ClassVar[bool] = True

    dtype: str = "float16"

    def __post_init__(self) -> None:
        """Refuse other types.

        Raises:
            InputError: ``dtype`` is none of these.
        """
        self.check_option("dtype", _TYPES)

    def requires(self, model: ir.Model) -> None:
        """The model is a step: in slot form, or ragged.

        Raises:
            InputError: It has no positions.
        """
        if "positions" not in {value.name for value in model.graph.inputs}:
            raise InputError(
                "the model is no step",
                where=f"pass {self.name}",
                hint="run kv-cache and, for engines without paged KV, kv-slots first",
            )

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        work = _Rewriter(model.graph, self.dtype, report)
        work.run()
        remove_unused(model)
        return report


class _Rewriter:
    def __init__(self, graph: ir.Graph, dtype: str, report: PassReport) -> None:
        self._graph = graph
        self._dtype, self._numpy = _TYPES[dtype]
        self._report = report
        self._narrowed: dict[ir.Value, ir.Value] = {}
        self._exact = _computed_from_positions(graph)

    def run(self) -> None:
        for value in self._graph.inputs:
            if value.dtype is ir.DataType.FLOAT:
                value.type = ir.TensorType(self._dtype)
        for node in list(self._graph):
            if node not in self._exact:
                self._convert(node)
        self._widen_logits()

    def _convert(self, node: ir.Node) -> None:
        for index, value in enumerate(node.inputs):
            if value is not None and self._is_wide(value):
                node.replace_input_with(index, self._narrow(node, value))
        if node.op_type == "Cast" and node.attributes.get_int("to", 0) in _FLOATS:
            node.attributes["to"] = ir.AttrInt64("to", int(self._dtype))
        for value in node.outputs:
            self._retype(node, value)
        self._report.add(node.op_type)

    def _retype(self, node: ir.Node, value: ir.Value) -> None:
        if node.op_type in _BOOLEAN:
            value.type = ir.TensorType(ir.DataType.BOOL)
        elif value.dtype is None or value.dtype in _FLOATS:
            given = next((v for v in node.inputs if v is not None and v.dtype in _FLOATS), None)
            if value.dtype is not None or given is not None:
                value.type = ir.TensorType(self._dtype)

    def _is_wide(self, value: ir.Value) -> bool:
        tensor = constant(value)
        if tensor is not None:
            return ir.DataType(tensor.dtype) in _FLOATS and tensor.dtype != self._dtype
        producer = value.producer()
        exact = producer is not None and producer in self._exact
        return exact and value.dtype in _FLOATS and value.dtype != self._dtype

    def _narrow(self, node: ir.Node, value: ir.Value) -> ir.Value:
        """``value`` in the compute type: a constant rounded, or a Cast."""
        if value not in self._narrowed:
            tensor = constant(value)
            if tensor is not None:
                self._narrowed[value] = self._rounded(value, tensor)
            else:
                self._narrowed[value] = self._cast(node, value)
        return self._narrowed[value]

    def _rounded(self, value: ir.Value, tensor: ir.TensorProtocol) -> ir.Value:
        name = f"{value.name}.{self._numpy.name}"
        if isinstance(tensor, LazyWeight):
            weight = tensor.map_rows(
                lambda rows: _narrowed(rows, self._numpy, str(value.name)), self._dtype
            )
            return add_initializer(self._graph, weight, name)
        array = tensor.numpy().astype(self._numpy, copy=False)  # a mask's lowest value: -inf
        return add_initializer(self._graph, ir.tensor(array, self._dtype, name=name), name)

    def _cast(self, node: ir.Node, value: ir.Value) -> ir.Value:
        name = f"{value.name}.{self._numpy.name}"
        options = ir.convenience.convert_attributes({"to": int(self._dtype)})
        cast = ir.Node("", "Cast", [value], options, name=name)
        narrow = cast.outputs[0]
        narrow.name, narrow.type, narrow.shape = name, ir.TensorType(self._dtype), value.shape
        self._graph.insert_before(node, [cast])
        return narrow

    def _widen_logits(self) -> None:
        logits = self._graph.outputs[0]
        if logits.dtype is ir.DataType.FLOAT:
            return
        options = ir.convenience.convert_attributes({"to": int(ir.DataType.FLOAT)})
        cast = ir.Node("", "Cast", [logits], options, name="logits.float32")
        wide = cast.outputs[0]
        wide.name, logits.name = logits.name, f"{logits.name}.{self._numpy.name}"
        wide.type, wide.shape = ir.TensorType(ir.DataType.FLOAT), logits.shape
        self._graph.append(cast)
        self._graph.outputs[0] = wide


def _narrowed(rows: Array, dtype: np.dtype[Any], name: str) -> Array:
    """``rows`` in another type; finite ones that it does not hold are refused by name."""
    with np.errstate(over="ignore"):
        narrow = rows.astype(dtype, copy=False)
    if dtype == np.float16 and narrow is not rows:
        lost = np.isinf(narrow) & np.isfinite(rows)
        if lost.any():
            raise UnsupportedError(
                f"holds {float(np.abs(rows[lost]).max()):.3g}, and float16 at most 65504",
                where=f"weight {name}",
                hint="use a recipe that computes in bfloat16, such as bf16-fused",
            )
    return narrow


def _computed_from_positions(graph: ir.Graph) -> set[ir.Node]:
    """Nodes that depend on ``positions`` and on no other input."""
    positions = next(value for value in graph.inputs if value.name == "positions")
    depends: dict[ir.Value, bool] = {}  # on positions alone; values that are not there are constant
    found: set[ir.Node] = set()
    for value in graph.inputs:
        depends[value] = value is positions
    for node in graph:
        given = [depends[v] for v in node.inputs if v is not None and v in depends]
        if not given:
            continue
        alone = all(given)
        if alone:
            found.add(node)
        depends.update(dict.fromkeys(node.outputs, alone))
    return found
