"""`tensorrt-attention`: attention over slots in TensorRT's operators, masks shared by layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.backends.tensorrt.legalize.mask import Mask, make_mask
from optc.backends.tensorrt.legalize.scores import attended_by_scores, is_spelled
from optc.ir.emit import Emitter, dims_of
from optc.ir.forms.engine import EngineForm
from optc.ir.forms.form import Form
from optc.ir.forms.static_kv import StaticKV
from optc.ir.functions import DOMAIN, attributes_of, is_op
from optc.ir.graph import replace_node
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport


@dataclass(frozen=True)
class LowerAttention(Pass):
    """``optc::SlotAttention`` becomes TensorScatter and Attention with an explicit mask.

    The mask [B, 1, S, Smax] is computed once for each window and chunk, as numbers that are added:
    so it costs no kernel of its own in every layer; slopes of heads are added to it layer by layer.
    With a softcap or sinks, which TensorRT's Attention has not, and with values narrower than keys,
    scores are computed by operators of their own.

    Attributes:
        slot_length: Tokens that a slot holds (Smax); the caches' lengths become static.
    """

    name: ClassVar[str] = "tensorrt-attention"
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (StaticKV,)
    gives: ClassVar[type[Form]] = EngineForm

    slot_length: int = 0

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report, form = PassReport(), StaticKV.read(model)
        graph = model.graph
        inputs = {str(value.name): value for value in graph.inputs}
        masks: dict[tuple[int, int], Mask] = {}
        for layer, node in enumerate(n for n in graph if is_op(n, "SlotAttention", domain=DOMAIN)):
            kind = node.attributes.get_int("window", 0), node.attributes.get_int("chunk", 0)
            if kind not in masks:
                masks[kind] = make_mask(graph, inputs, kind, self.slot_length, node)
            emit = Emitter(graph, f"layer.{layer}.attention")
            outputs = self._lower(emit, node, masks[kind].of(emit, node))
            shapes = [value.shape for value in outputs]
            replace_node([node], emit.nodes, node.outputs, outputs)
            for value, shape in zip(outputs, shapes, strict=True):
                value.shape = shape
            report.add("spelled out" if is_spelled(node) else "fused")
        EngineForm(form.kv).attach(model)
        report.facts = {"masks": len(masks), "slot_length": self.slot_length}
        return report

    def _lower(self, emit: Emitter, node: ir.Node, mask: ir.Value) -> list[ir.Value]:
        attributes = attributes_of(node)
        heads, kv_heads = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
        q, k, v, *pasts, writes = node.inputs[:6]
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
        if is_spelled(node) or widths[0] != widths[1]:
            attended = attended_by_scores(emit, node, query, presents, mask, widths)
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
