"""An encoder over packed rows as a `Program`: one function, its weights, and the pools that keys
and values pass through."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import onnx_ir as ir

from optc.backends.tvm.lowering.lower_model import HANDLERS, pool_tensors
from optc.backends.tvm.lowering.lower_packed import PLACES
from optc.backends.tvm.lowering.walk import Lowering, times
from optc.backends.tvm.packed_data import Packed, PackedPatches
from optc.backends.tvm.program import Function, Program, Tensor
from optc.backends.tvm.weights.weights_file import PackedWeight
from optc.ir.forms.packed import FEATURES, POSITIONS, STARTS, TOKENS, TYPES, PackedRows
from optc.ir.functions import operand
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.system.hardware.target import Target

#: Rows of a call at least: more texts than these have run as several calls. What is computed in
#: between fits the caches of a processor.
_ROWS = 1024
#: Sequences of a call.
_SEQUENCES = 256


@dataclass(frozen=True)
class LoweredEncoder:
    """The lowering's result for the build.

    Attributes:
        program: For the compiler.
        weights: Packed weights, in the order of the step's arguments.
        packed: How tensors become rows.
    """

    program: Program
    weights: tuple[PackedWeight, ...]
    packed: Packed


def lower_encoder(model: ir.Model, interface: TensorsInterface, target: Target) -> LoweredEncoder:
    """Lower an encoder over packed rows (docs/normal-form.md).

    Args:
        model: In the form `optc.ir.forms.packed.PackedRows`.
        interface: Of its source.
        target: A CPU.

    Raises:
        UnsupportedError: Nodes cannot be lowered; all are listed with their reasons.
        InputError: The model is in another form.
    """
    form, graph = PackedRows.of(model), model.graph
    lowering = Lowering(1, [])
    names = [*([] if form.patches else [TOKENS]), POSITIONS, *([TYPES] if form.types else [])]
    rows = {name: Tensor(name, "int32", ("T",)) for name in names}
    if form.patches is not None:
        width = _width_of_features(graph)
        rows = {
            FEATURES: Tensor(FEATURES, "float32", (times(form.patches.rate, "T"), width)),
            **rows,
        }
    starts = Tensor(STARTS, "int32", ("B+1",))
    by_name = {**rows, STARTS: starts}
    for value in graph.inputs:
        lowering.tensors[value] = by_name[str(value.name)]
    limits = _table_rows(graph)
    lowering.run(graph, HANDLERS)
    layers = tuple(lowering.kv_layers)
    pools = [t for i, layer in enumerate(layers) for t in pool_tensors(i, layer)]
    weights = tuple(lowering.weights.values())
    packed = [tensor for weight in weights for tensor in weight.tensors]
    arguments = (*rows.values(), starts, *_places(), *packed, *pools)
    results = [lowering.tensor(value).name for value in graph.outputs]
    step = Function("step", arguments, tuple(lowering.calls), results[0], tuple(results[1:]))
    most = form.patches.tokens if form.patches else _longest(interface, form)
    bounds = {"T": max(_ROWS, most), "B": _SEQUENCES}
    program = Program((step,), bounds, target.name, target.features)
    return LoweredEncoder(
        program,
        weights,
        Packed(
            ids=form.ids,
            mask=form.mask,
            types=form.types,
            vocabulary=limits.get(TOKENS, 0),
            type_count=limits.get(TYPES, 0),
            position_count=limits.get(POSITIONS, 0),
            by_token=form.by_token,
            max_rows=bounds["T"],
            max_sequences=_SEQUENCES,
            layers=layers,
            patches=None if form.patches is None else PackedPatches(**asdict(form.patches)),
            heads=dict(form.heads),
        ),
    )


def _longest(interface: TensorsInterface, form: PackedRows) -> int:
    """The most tokens of a text."""
    (ids,) = (one for one in interface.inputs if one.name == form.ids)
    sizes = [interface.symbols[d].most for d in ids.dims[1:] if isinstance(d, str)]
    return max(sizes, default=_ROWS)


def _width_of_features(graph: ir.Graph) -> int:
    """Values of a row of `FEATURES`."""
    (features,) = (value for value in graph.inputs if value.name == FEATURES)
    width = None if features.shape is None else features.shape[-1]
    if not isinstance(width, int):
        raise ValueError(f"{FEATURES} has no width")
    return width


def _places() -> tuple[Tensor, ...]:
    shapes: tuple[tuple[int | str, ...], ...] = ((1, "T"), (1, "B"), (1, "B", "P"), (1,))
    return tuple(Tensor(name, "int32", shape) for name, shape in zip(PLACES, shapes, strict=True))


def _table_rows(graph: ir.Graph) -> dict[str, int]:
    """Rows of the smallest table that an input is looked up in, by the input's name."""
    found: dict[str, int] = {}
    for value in graph.inputs:
        for node, index in value.uses():
            rows = _rows_of_table(node, index)
            if rows:
                name = str(value.name)
                found[name] = min(rows, found.get(name, rows))
    return found


def _rows_of_table(node: ir.Node, index: int) -> int:
    if node.op_type == "Gather" and index == 1:
        table, axis = node.inputs[0], 0
    elif node.op_type in ("QuantizedGather", "Bf16Gather") and index == 0:
        table, axis = operand(node, "weight"), 1
    else:
        return 0
    tensor = None if table is None else ir.convenience.get_const_tensor(table)
    return 0 if tensor is None else int(tensor.shape.numpy()[axis])
