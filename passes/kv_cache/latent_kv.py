"""`latent-kv`: attention over the latent that keys and values are made of; the cache holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.forms.decoder import Dense
from optc.ir.forms.form import Form
from optc.ir.functions import DOMAIN, attributes_of, is_op, make_node
from optc.ir.graph import add_initializer, int_initializer, remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.weights import transposed_blocks
from optc.passes.canonicalize.dataflow import dims, emit, insert
from optc.passes.canonicalize.probing.columns import take_columns
from optc.passes.canonicalize.probing.evaluate import Unreadable
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.kv_cache.latents import Latent, find_latent, turned_columns
from optc.runtime.executable.executable import INT4_GROUP

#: Latents must be more than so many times smaller. They take as many times the operations as a
#: head's keys and values are narrower: `auto` takes them where memory would else bound everything.
_LEAST = {"auto": 16.0, "latents": 1.0}
_STORED = ("auto", "latents", "heads")
#: Kernels read keys and values in vectors of so many channels.
_MULTIPLE = 8


@dataclass(frozen=True)
class LatentKV(Pass):
    """Attention whose keys and values are projections of one narrow latent c reads the latent
    itself, as the one head that all queries share; so the KV cache holds c, and not its
    projections for every head (multi-head latent attention, DeepSeek-V2, arXiv 2405.04434).

    Of a head, q · (W_k c) = (W_kᵀ q) · c, and the sum of p_i W_v c_i is W_v times the sum of
    p_i c_i: the projections move before and behind the attention, as matmuls by head
    (``optc::SplitHeads``, ``optc::ExpertMatMul``, ``optc::MergeHeads``). Columns of keys that all
    heads share, such as rotary ones, stay beside the latent.

    Legal case: values are a linear layer of c without bias; keys are one, too, in each head behind
    columns that all heads share, or alone; at most a rotary embedding turns these columns, and
    those of the queries alike; queries are columns that can be put in another order; a token's
    latent and shared columns are fewer than its keys and values. Where a pass behind it knows no
    matmuls by experts, projections stay as they are: room for adapters is for linear layers, and
    ``allocate-bits`` chooses formats of these.

    Attributes:
        store: ``latents``, where they are smaller; ``heads``, keys and values as they are;
            ``auto``, latents where they are more than 16 times smaller.
    """

    name: ClassVar[str] = "latent-kv"
    phase: ClassVar[Phase] = Phase.BASIS
    effects: ClassVar[Effect] = Effect.TURNS_KV | Effect.MOVES_WEIGHTS | Effect.MAKES_EXPERTS
    unlike_class: ClassVar[str] = (
        "projections of keys lie behind those of queries; "
        "--set latent-kv.store=heads leaves them as they are"
    )
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)
    #: the projections are layers of their own yet, and float
    before: ClassVar[tuple[str, ...]] = ("rotate-kv", "balance-keys", "fuse-qkv", "kv-cache")
    store: str = "auto"

    def __post_init__(self) -> None:
        """Refuse other choices.

        Raises:
            InputError: ``store`` is none of the three.
        """
        self.check_option("store", _STORED)

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place."""
        report = PassReport()
        if self.store == "heads":
            return report
        if (blind := next((p for p in context.later if not p.knows_experts), None)) is not None:
            report.skip(None, f"{blind.name}, behind it, knows no matmuls by experts or by heads")
            return report
        multiple = _multiple(context)
        for node in [n for n in model.graph if is_op(n, "Attention", domain=DOMAIN)]:
            found = find_latent(node, multiple, _LEAST[self.store])
            if isinstance(found, str):
                if found:
                    report.skip(node, found)
                continue
            try:
                queries = _queries(model, node, found)
            except Unreadable as error:
                report.skip(node, str(error))
                continue
            _absorb(model, node, found, queries)
            report.add(f"latents of {found.width}, {found.shared_width} shared columns")
        remove_unused(model)
        return report


def _multiple(context: PassContext) -> int:
    """Pools of int4 hold pairs of groups of channels."""
    int4 = any(isinstance(one, KVCache) and one.dtype == "int4" for one in context.later)
    return 2 * INT4_GROUP if int4 else _MULTIPLE


def _absorb(
    model: ir.Model,
    attention: ir.Node,
    found: Latent,
    queries: tuple[ir.Value | None, ir.Value],
) -> None:
    """Let one attention read the latent, behind columns that all heads share."""
    q_shared, q = queries
    transposed = transposed_blocks(found.keys.weight, found.own_width)
    weight = add_initializer(model.graph, transposed, f"{found.keys.name}.absorbed")
    split = _split(model, attention, q, found.heads)
    q, k = _by_head(model, attention, split, weight), found.value
    if found.shared is not None and q_shared is not None:
        q = _joined(model, attention, (q_shared, q), found.heads)
        k = _joined(model, attention, (found.shared, k), 1)
    if found.rotary is not None:
        q = _turned(attention, q, found.rotary, found.heads)
        k = _turned(attention, k, found.rotary, 1)
    lead = dims(found.value)[:-1]
    new = make_node(
        model,
        "Attention",
        [q, k, found.value, *attention.inputs[3:]],
        {**attributes_of(attention), "kv_num_heads": 1},
        shapes=[_shape(lead, found.heads * found.width)],
        name=attention.name,
    )
    insert(attention, new)
    split = _split(model, attention, new.outputs[0], found.heads)
    result = _by_head(model, attention, split, found.values.initializer)
    attention.outputs[0].replace_all_uses_with(result, replace_graph_outputs=True)


def _queries(
    model: ir.Model, attention: ir.Node, found: Latent
) -> tuple[ir.Value | None, ir.Value]:
    """Queries for the shared columns of all heads, and those for each head's own.

    Raises:
        Unreadable: Their columns cannot be put in another order.
    """
    if not found.shared_width:
        return None, found.queries
    size = found.shared_width + found.own_width
    columns = np.arange(found.heads * size).reshape(found.heads, size)
    parts = np.split(columns, [found.shared_width], axis=1)
    order = np.concatenate([part.ravel() for part in parts])
    both = take_columns(model, attention, found.queries, order, "latent")
    sizes = int_initializer(model.graph, [part.size for part in parts], "query_parts")
    split = ir.Node(
        "", "Split", [both, sizes], ir.convenience.convert_attributes({"axis": -1}), num_outputs=2
    )
    for value, part in zip(split.outputs, parts, strict=True):
        value.type, value.shape = both.type, ir.Shape([*dims(both)[:-1], part.size])
    insert(attention, split)
    return split.outputs[0], split.outputs[1]


def _split(model: ir.Model, before: ir.Node, x: ir.Value, heads: int) -> tuple[ir.Value, ir.Value]:
    """Heads [B, S, H, K] of x [B, S, H * K], and the number of each, [B, S, H]."""
    lead = dims(x)[:-1]
    shapes = [_shape(lead, heads, int(dims(x)[-1] or 0) // heads), _shape(lead, heads)]
    node = make_node(model, "SplitHeads", [x], {"num_heads": heads}, shapes=shapes)
    insert(before, node)
    return node.outputs[0], node.outputs[1]


def _by_head(
    model: ir.Model, before: ir.Node, rows: tuple[ir.Value, ir.Value], weight: ir.Value
) -> ir.Value:
    """Heads [B, S, H, K], and their numbers, each by its own N columns of a weight [K, H * N]:
    [B, S, H * N]."""
    *lead, heads, _ = dims(rows[0])
    count, columns = int(heads or 0), int(dims(weight)[-1] or 0)
    attributes = {"num_experts": count, "spread": 0}
    shape = _shape(lead, count, columns // count)
    matmul = make_node(model, "ExpertMatMul", [*rows, weight], attributes, shapes=[shape])
    merged = make_node(model, "MergeHeads", matmul.outputs, shapes=[_shape(lead, columns)])
    insert(before, matmul)
    insert(before, merged)
    return merged.outputs[0]


def _joined(
    model: ir.Model, before: ir.Node, parts: tuple[ir.Value, ir.Value], heads: int
) -> ir.Value:
    """In each head the columns of both."""
    total = sum(int(dims(part)[-1] or 0) for part in parts)
    shape = _shape(dims(parts[1])[:-1], total)
    node = make_node(model, "HeadConcat", parts, {"num_heads": heads, "shared": 0}, shapes=[shape])
    insert(before, node)
    return node.outputs[0]


def _turned(before: ir.Node, x: ir.Value, rotary: ir.Node, heads: int) -> ir.Value:
    """The first columns of each head turned as ``rotary`` turns them."""
    attributes = {
        **attributes_of(rotary),
        "num_heads": heads,
        "rotary_embedding_dim": turned_columns(rotary),
    }
    return emit(before, "RotaryEmbedding", [x, *rotary.inputs[1:]], x, attributes)


def _shape(lead: list[int | str | None], *last: int) -> list[int | str]:
    return [*(size if size is not None else "N" for size in lead), *last]
