"""`ort-attention`: attention over slots by ``com.microsoft::GroupQueryAttention``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import onnx_ir as ir

from optc.backends.onnxruntime.legalize.positions import RotaryTables
from optc.ir.emit import dims_of
from optc.ir.forms.engine import EngineForm
from optc.ir.forms.form import Form
from optc.ir.forms.static_kv import StaticKV
from optc.ir.functions import DOMAIN, attributes_of, is_op, operand
from optc.ir.graph import constant_ints, replace_node, width
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport

CONTRIB = "com.microsoft"
#: Inputs of the model instead of ``write_indices``, int32: tokens of each slot after the step less
#: one [B], and the most of all slots [].
SEQUENCE_LENGTHS, TOTAL_LENGTH = "seqlens_k", "total_sequence_length"


@dataclass(frozen=True)
class _Rotated:
    """q or k before its rotary embedding, and that."""

    source: ir.Value
    rotary: ir.Node | None


@dataclass(frozen=True)
class GroupQueryAttention(Pass):
    """``optc::SlotAttention`` becomes one operator, which writes into the slots it is given.

    Legal cases:
        1. keys and values of one width, no sinks, slopes and chunks: GroupQueryAttention, with
           softcap and window;
        2. and q and k rotated by the same tables of positions, in which multiples of 8 columns
           are: the operator rotates them, by tables that are computed when the engine is built;
        3. and q, k and v the outputs of one Split: the operator takes them side by side.

    Everything else keeps its function: TensorScatter and Attention.

    Attributes:
        positions: Rows of the rotary tables: the context, and one for slots that are not in use.
    """

    name: ClassVar[str] = "ort-attention"
    takes: ClassVar[tuple[type[Form], ...]] = (StaticKV,)
    gives: ClassVar[type[Form]] = EngineForm

    positions: int = 0

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report, form = PassReport(), StaticKV.read(model)
        graph = model.graph
        nodes = [n for n in graph if is_op(n, "SlotAttention", domain=DOMAIN)]
        tables = RotaryTables(model, self.positions)
        lengths: list[ir.Value] = []
        for node in nodes:
            reason = spelled_out(node)
            if not reason and not _equal_widths(node):
                reason = "keys and values are not of one width"
            if reason:
                report.skip(node, reason)
                continue
            lengths = lengths or _length_inputs(graph)
            report.add(_replace(node, tables, lengths))
        model.opset_imports[CONTRIB] = 1
        EngineForm(form.kv).attach(model)
        return report


def spelled_out(node: ir.Node) -> str:
    """Why no operator of ONNX Runtime's own computes an attention of ours; empty if one may."""
    names = {"sinks": "its heads have sinks", "alibi_slopes": "its heads have slopes"}
    for name, reason in names.items():
        if operand(node, name) is not None:
            return reason
    return "its rows see chunks" if node.attributes.get_int("chunk", 0) else ""


def _equal_widths(node: ir.Node) -> bool:
    widths = {value.shape[3] for value in node.inputs[3:5] if value is not None and value.shape}
    return len(widths) == 1 and all(isinstance(width, int) and width % 8 == 0 for width in widths)


def _length_inputs(graph: ir.Graph) -> list[ir.Value]:
    int32 = ir.TensorType(ir.DataType.INT32)
    added = [
        ir.Value(name=SEQUENCE_LENGTHS, type=int32, shape=ir.Shape(["B"])),
        ir.Value(name=TOTAL_LENGTH, type=int32, shape=ir.Shape([])),
    ]
    graph.inputs.extend(added)
    return added


def _replace(node: ir.Node, tables: RotaryTables, lengths: list[ir.Value]) -> str:
    graph = node.graph
    if graph is None:
        raise ValueError(f"{node.name}: node is in no graph")
    attributes = attributes_of(node)
    q, k = (_rotated(value) for value in node.inputs[:2])
    rotary: list[ir.Value] | None = None
    options: dict[str, Any] = {}
    if q.rotary is not None and k.rotary is not None and _eights(q.rotary.inputs[1]):
        rotary = tables.of(q.rotary, k.rotary)
    if rotary is not None and q.rotary is not None:
        options = {
            "do_rotary": 1,
            "rotary_interleaved": q.rotary.attributes.get_int("interleaved", 0),
        }
        operands = [q.source, k.source, node.inputs[2]]
    else:
        operands = list(node.inputs[:3])
    packed = _packed(operands)
    if packed is not None:
        operands = [packed, None, None]
    window = int(attributes["window"])
    new = ir.Node(
        CONTRIB,
        "GroupQueryAttention",
        [*operands, *node.inputs[3:5], *lengths, *(rotary or [])],
        ir.convenience.convert_attributes(
            {
                "num_heads": int(attributes["num_heads"]),
                "kv_num_heads": int(attributes["kv_num_heads"]),
                "scale": float(attributes["scale"]),
                "softcap": float(attributes["softcap"]),
                "local_window_size": window or -1,
                **options,
            }
        ),
        num_outputs=3,
        name=node.name,
    )
    dims = [dims_of(value) for value in node.outputs]
    replace_node([node], [new], node.outputs, new.outputs)
    for value, shape in zip(new.outputs, dims, strict=True):
        value.type = ir.TensorType(ir.DataType.FLOAT)
        value.shape = None if shape is None else ir.Shape(shape)
    return " and ".join(
        filter(None, ["attention", "rotary" if rotary else "", "packed" if packed else ""])
    )


def _eights(table: ir.Value | None) -> bool:
    """True if a rotary table has a multiple of 8 columns, as the operator wants it."""
    columns = None if table is None else width(table)
    return columns is not None and columns % 8 == 0


def _rotated(value: ir.Value | None) -> _Rotated:
    if value is None:
        raise ValueError("an attention without q or k")
    node = value.producer()
    if node is None or not is_op(node, "RotaryEmbedding") or node.inputs[0] is None:
        return _Rotated(value, None)
    return _Rotated(node.inputs[0], node)


def _packed(operands: list[ir.Value | None]) -> ir.Value | None:
    """The value that q, k and v were split from, if these are all of it, in order."""
    first = operands[0]
    split = None if first is None else first.producer()
    if split is None or not is_op(split, "Split") or list(split.outputs) != operands:
        return None
    sizes = constant_ints(split.inputs[1]) if len(split.inputs) > 1 else None
    return split.inputs[0] if sizes is not None else None
