"""`tensorrt-attention`: attention over slots in TensorRT's operators, masks shared by layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.forms.engine import EngineForm
from optc.forms.form import Form
from optc.forms.static_kv import StaticKV
from optc.ir.emit import Emitter, dims_of
from optc.ir.functions import DOMAIN, attributes_of, is_op
from optc.ir.graph import replace_node
from optc.pipeline.base import Pass, PassReport

#: What is added to the score of a token that a row must not see. Finite, so that no kernel meets
#: infinities, and far within float16.
MASKED = -30000.0
_BOOL, _INT64 = ir.DataType.BOOL, ir.DataType.INT64


@dataclass(frozen=True)
class LowerAttention(Pass):
    """``optc::SlotAttention`` becomes TensorScatter and Attention with an explicit mask.

    The mask [B, 1, S, Smax] is computed once for each window, as numbers that are added: so it
    costs no kernel of its own in every layer. With a softcap, which TensorRT's Attention has not,
    scores are computed by operators of their own.

    Attributes:
        slot_length: Tokens that a slot holds (Smax); the caches' lengths become static.
    """

    name: ClassVar[str] = "tensorrt-attention"
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (StaticKV,)
    gives: ClassVar[type[Form]] = EngineForm

    slot_length: int = 0

    def run(self, model: ir.Model) -> PassReport:
        """Rewrite ``model`` in place."""
        report, form = PassReport(), StaticKV.read(model)
        graph = model.graph
        inputs = {str(value.name): value for value in graph.inputs}
        masks: dict[int, ir.Value] = {}
        for layer, node in enumerate(n for n in graph if is_op(n, "SlotAttention", domain=DOMAIN)):
            window = node.attributes.get_int("window", 0)
            if window not in masks:
                masks[window] = self._mask(graph, inputs, window, node)
            emit = Emitter(graph, f"layer.{layer}.attention")
            outputs = self._lower(emit, node, masks[window])
            shapes = [value.shape for value in outputs]
            replace_node([node], emit.nodes, node.outputs, outputs)
            for value, shape in zip(outputs, shapes, strict=True):
                value.shape = shape
            report.add("fused" if not node.attributes.get_float("softcap", 0.0) else "with softcap")
        EngineForm(form.kv).attach(model)
        report.facts = {"masks": len(masks), "slot_length": self.slot_length}
        return report

    def _mask(
        self, graph: ir.Graph, inputs: dict[str, ir.Value], window: int, before: ir.Node
    ) -> ir.Value:
        """What is added to scores, [B, 1, S, Smax]."""
        emit = Emitter(graph, f"mask.{window}" if window else "mask")
        rows = emit.op("rows", "Shape", [inputs["tokens"]], [1], _INT64, start=1, end=2)
        count = emit.op("count", "Squeeze", [rows, emit.integers("axis", [0])], [], _INT64)
        zero, one = (emit.constant(str(n), np.array(n, np.int64)) for n in (0, 1))
        row = emit.op("row", "Range", [zero, count, one], ["S"], _INT64)
        column = emit.op("row_column", "Unsqueeze", [row, emit.integers("last", [1])], None, _INT64)
        axes = emit.integers("behind", [1, 2, 3])
        start = emit.op("start", "Unsqueeze", [inputs["write_indices"], axes], None, _INT64)
        place = emit.op("place", "Add", [start, column], ["B", 1, "S", 1], _INT64)
        keys = emit.constant("keys", np.arange(self.slot_length, dtype=np.int64))
        dims: list[int | str] = ["B", 1, "S", self.slot_length]
        seen = emit.op("seen", "LessOrEqual", [keys, place], dims, _BOOL)
        if window:
            distance = emit.op("distance", "Sub", [place, keys], dims, _INT64)
            width = emit.constant("window", np.array(window, np.int64))
            near = emit.op("near", "Less", [distance, width], dims, _BOOL)
            seen = emit.op("visible", "And", [seen, near], dims, _BOOL)
        shown, hidden = (
            emit.constant(name, np.array(value, np.float32))
            for name, value in (("shown", 0.0), ("hidden", MASKED))
        )
        mask = emit.op("added", "Where", [seen, shown, hidden], dims)
        graph.insert_before(before, emit.nodes)
        return mask

    def _lower(self, emit: Emitter, node: ir.Node, mask: ir.Value) -> list[ir.Value]:
        attributes = attributes_of(node)
        heads, kv_heads = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
        q, k, v, *pasts, writes = node.inputs
        presents: list[ir.Value] = []
        widths: list[int] = []
        for kind, new, past in zip("kv", (k, v), pasts, strict=True):
            width = None if past is None or past.shape is None else past.shape[3]
            if past is None or not isinstance(width, int):
                raise ValueError(f"{node.name}: a cache has no static width")
            past.shape = ir.Shape(["B", kv_heads, self.slot_length, width])
            rows = _by_head(emit, kind, new, kv_heads, width)
            scattered = emit.op(
                f"write_{kind}", "TensorScatter", [past, rows, writes], dims_of(past), axis=-2
            )
            presents.append(scattered)
            widths.append(width)
        query = _by_head(emit, "q", q, heads, widths[0])
        if attributes["softcap"]:
            attended = _capped(emit, query, presents, mask, attributes, widths)
        else:
            attended = emit.op(
                "attend",
                "Attention",
                [query, *presents, mask],
                ["B", heads, "S", widths[1]],
                scale=float(attributes["scale"]),
            )
        dims: list[int | str] = ["B", "S", heads, widths[1]]
        by_token = emit.op("by_token", "Transpose", [attended], dims, perm=[0, 2, 1, 3])
        flat = emit.integers("merged", [0, 0, -1])
        out = emit.op("out", "Reshape", [by_token, flat], ["B", "S", heads * widths[1]])
        return [out, *presents]


def _by_head(emit: Emitter, kind: str, x: ir.Value | None, heads: int, width: int) -> ir.Value:
    """[B, S, heads * width] as [B, heads, S, width]."""
    shape = emit.integers(f"{kind}_split", [0, 0, heads, width])
    split = emit.op(f"{kind}_heads", "Reshape", [x, shape], ["B", "S", heads, width])
    dims: list[int | str] = ["B", heads, "S", width]
    return emit.op(f"{kind}_by_head", "Transpose", [split], dims, perm=[0, 2, 1, 3])


def _capped(
    emit: Emitter,
    query: ir.Value,
    presents: list[ir.Value],
    mask: ir.Value,
    attributes: dict[str, int | float | str],
    widths: list[int],
) -> ir.Value:
    """Scores bent by tanh before the mask, every query head beside the others of its KV head."""
    heads, kv_heads = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
    group = heads // kv_heads
    keys, values = presents
    length = keys.shape[2] if keys.shape is not None else None
    if not isinstance(length, int):
        raise ValueError("a cache has no static length")
    grouped = emit.integers("grouped", [0, kv_heads, group, -1, widths[0]])
    rows = emit.op("q_grouped", "Reshape", [query, grouped], ["B", kv_heads, group, "S", widths[0]])
    dims: list[int | str] = ["B", kv_heads, widths[0], length]
    turned = emit.op("keys", "Transpose", [keys], dims, perm=[0, 1, 3, 2])
    axis = emit.integers("group_axis", [2])
    shared = emit.op("keys_shared", "Unsqueeze", [turned, axis], None)
    score: list[int | str] = ["B", kv_heads, group, "S", length]
    cap = float(attributes["softcap"])
    inner = emit.constant("inner", np.array(float(attributes["scale"]) / cap, np.float32))
    # the queries are scaled first, so that products stay small in half precision
    small = emit.op("q_small", "Mul", [rows, inner], None)
    product = emit.op("scores", "MatMul", [small, shared], score)
    bent = emit.op("bent", "Tanh", [product], score)
    outer = emit.constant("softcap", np.array(cap, np.float32))
    capped = emit.op("capped", "Mul", [bent, outer], score)
    mask_shared = emit.op("mask_shared", "Unsqueeze", [mask, axis], None)
    masked = emit.op("masked", "Add", [capped, mask_shared], score)
    weights = emit.op("weights", "Softmax", [masked], score, axis=-1)
    values_shared = emit.op("values_shared", "Unsqueeze", [values, axis], None)
    out = emit.op("weighed", "MatMul", [weights, values_shared], None)
    merged = emit.integers("by_head", [0, heads, -1, widths[1]])
    return emit.op("attend", "Reshape", [out, merged], ["B", heads, "S", widths[1]])
