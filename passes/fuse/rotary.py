"""`fuse-rotary`: attention over rows takes what prepares its q and k: Split, head norms, rotary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.forms.form import Form
from optc.ir.forms.packed import PackedRows
from optc.ir.forms.ragged import RaggedStep
from optc.ir.functions import DOMAIN, attributes_of, is_op, make_node
from optc.ir.graph import remove_unused, replace_node, width
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase

_ATTENTIONS = ("PagedAttention", "PackedAttention")


@dataclass(frozen=True)
class _Chain:
    """One of q and k traced back: its source before head norm, rotary and rotation, and these."""

    source: ir.Value
    norm: ir.Node | None
    rotary: ir.Node | None
    rotation: ir.Node | None


@dataclass(frozen=True)
class FuseRotary(Pass):
    """Every ``optc::PagedAttention`` and ``optc::PackedAttention``, with what prepares its q and k.

    Legal cases, each of q and k being a source, then at most a head norm, then at most a rotary,
    then at most a rotation of channels:
        1. the sources are the outputs of one Split of qkv: its operand is taken;
        2. other sources are joined by Concat;
        3. rotary is on both q and k, by the same tables and options, or on neither;
        4. head norms are on either, with the same epsilon if on both;
        5. ``optc::BlockHadamard`` is on both q and k, with equal blocks, or on neither.
    """

    name: ClassVar[str] = "fuse-rotary"
    phase: ClassVar[Phase] = Phase.FUSION
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS
    expected: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (RaggedStep, PackedRows)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        for node in [n for n in model.graph if is_op(n, *_ATTENTIONS, domain=DOMAIN)]:
            q, k, v = _trace(node.inputs[0]), _trace(node.inputs[1]), node.inputs[2]
            if q is None or k is None or v is None:
                report.skip(node, "an operand is missing")
                continue
            reason = _refusal(q, k)
            if reason:
                report.skip(node, reason)
                continue
            _fuse(model, node, q, k, v)
            report.add(_label(q, k))
        remove_unused(model)
        return report


def _trace(value: ir.Value | None) -> _Chain | None:
    if value is None:
        return None
    found: list[ir.Node | None] = []
    for op_type in ("BlockHadamard", "RotaryEmbedding", "HeadRMSNorm"):
        node = _producer(value, op_type)
        found.append(node)
        value = value if node is None else node.inputs[0]
    rotation, rotary, norm = found
    return None if value is None else _Chain(value, norm, rotary, rotation)


def _producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    node = value.producer() if value is not None else None
    return node if node is not None and is_op(node, op_type, domain=DOMAIN) else None


def _refusal(q: _Chain, k: _Chain) -> str:
    """Empty if q and k are prepared alike, else how they differ (cases 3 to 5)."""
    if _option(q.rotation, "block") != _option(k.rotation, "block"):
        return "q and k are rotated in different blocks"
    if (q.rotary is None) != (k.rotary is None):
        return "rotary on only one of q and k"
    if q.rotary is not None and k.rotary is not None:
        if list(q.rotary.inputs[1:]) != list(k.rotary.inputs[1:]):
            return "q and k have different rotary tables"
        if any(_option(q.rotary, o) != _option(k.rotary, o) for o in _ROTARY):
            return "q and k have different rotary options"
    if q.norm is not None and k.norm is not None and _epsilon(q) != _epsilon(k):
        return "the head norms of q and k have different epsilons"
    if any(width(chain.source) is None for chain in (q, k)):
        return "the width of q or k is unknown"
    return ""


_ROTARY = ("rotary_embedding_dim", "interleaved")


def _option(node: ir.Node | None, name: str) -> int:
    return 0 if node is None else node.attributes.get_int(name, 0)


def _epsilon(chain: _Chain) -> float:
    return 0.0 if chain.norm is None else chain.norm.attributes.get_float("epsilon", 0.0)


def _label(q: _Chain, k: _Chain) -> str:
    parts = [
        "rotary" if q.rotary is not None else "",
        "head norms" if q.norm is not None or k.norm is not None else "",
    ]
    return " and ".join(filter(None, parts)) or "plain attention"


def _fuse(model: ir.Model, node: ir.Node, q: _Chain, k: _Chain, v: ir.Value) -> None:
    attributes = attributes_of(node)
    heads = int(attributes["num_heads"])
    tables = [None, None] if q.rotary is None else list(q.rotary.inputs[1:3])
    scales = [None if chain.norm is None else chain.norm.inputs[1] for chain in (q, k)]
    new = make_node(
        model,
        f"Rotary{node.op_type}",
        [
            _joined(model.graph, node, [q.source, k.source, v]),
            *tables,
            *scales,
            *node.inputs[3:],
        ],
        {
            **attributes,
            "rotary_embedding_dim": _option(q.rotary, "rotary_embedding_dim"),
            "interleaved": _option(q.rotary, "interleaved"),
            "epsilon": _epsilon(q) or _epsilon(k),
            "key_dim": (width(q.source) or 0) // heads,
            "value_dim": _value_dim(node, v),
            "hadamard": _option(q.rotation, "block"),
        },
        name=node.name,
    )
    replace_node([node], [new], node.outputs, new.outputs)


def _value_dim(node: ir.Node, values: ir.Value) -> int:
    if is_op(node, "PackedAttention", domain=DOMAIN):
        return (width(values) or 0) // node.attributes.get_int("kv_num_heads", 1)
    pool = node.inputs[4]
    dim = None if pool is None or pool.shape is None else pool.shape[3]
    if not isinstance(dim, int):
        raise ValueError(f"{node.name}: the pool of values has no width")
    return dim


def _joined(graph: ir.Graph, node: ir.Node, sources: list[ir.Value]) -> ir.Value:
    """The value that holds q, k and v side by side (cases 1 and 2)."""
    split = sources[0].producer()
    if split is not None and is_op(split, "Split") and list(split.outputs) == sources:
        whole = split.inputs[0]
        if whole is not None:
            return whole
    concat = ir.Node(
        "",
        "Concat",
        sources,
        ir.convenience.convert_attributes({"axis": -1}),
        name=f"{node.name}.concat",
    )
    joined = concat.outputs[0]
    joined.name, joined.type = f"{node.name}.qkv", ir.TensorType(ir.DataType.FLOAT)
    sizes = [width(source) for source in sources]
    if None not in sizes:
        joined.shape = ir.Shape(["T", sum(size or 0 for size in sizes)])
    graph.insert_before(node, [concat])
    return joined
