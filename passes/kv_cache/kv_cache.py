"""`kv-cache`: turn the cache-less dense form into the ragged step over paged KV pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.errors import InputError, UnsupportedError
from optc.ir.forms.decoder import FEATURES, Dense
from optc.ir.forms.form import Form
from optc.ir.forms.kv_pools import KVPools
from optc.ir.forms.ragged import TREE_PARENT, RaggedStep
from optc.ir.functions import DOMAIN, attributes_of, is_op, make_node, operand
from optc.ir.graph import remove_unused, replace_node, width
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.kv_cache.convolution_pools import PAGED as ROWS
from optc.passes.kv_cache.convolution_pools import Convolutions
from optc.passes.kv_cache.cross_pools import page_cross, take_cross
from optc.passes.kv_cache.layer_pools import (
    Kept,
    add_pools,
    kept_of,
    layer_of,
    recent_layer,
    windows_of,
)
from optc.passes.kv_cache.logit_rows import gather_logit_rows
from optc.passes.kv_cache.recurrence_pools import PAGED as STATES
from optc.passes.kv_cache.recurrence_pools import WINDOW, Recurrences
from optc.passes.kv_cache.token_rows import collapse, narrow_to_int32
from optc.runtime.executable.executable import LayerKV

#: A decoder has one of these at least.
_MIXERS = ("Attention", "LinearAttention")
#: Types of paged pools.
_TYPES = ("float32", "bfloat16", "float16", "int8", "int4")
#: Types that other tools have, and that are refused (ADR 0132).
_TOO_FEW_BITS = ("int3", "int2")
_STEP_SHAPES: dict[str, tuple[int | str, ...]] = {
    "slot_mapping": ("G", "T"),
    "query_starts": ("B+1",),
    "kv_lengths": ("G", "B"),
    "block_tables": ("G", "B", "P"),
    "logit_rows": ("R",),
}


@dataclass(frozen=True)
class KVCache(Pass):
    """Every ``optc::Attention`` reads and writes paged pools; rows of all sequences are one axis.

    Layers are numbered in graph order. Layers of one window share a KV group; groups sort by
    window with 0 (all tokens) first. A layer whose rows see a chunk is in the group of the window
    of that many tokens: no row sees further back, and what it does not see of them the attention
    masks. Logits are computed for ``logit_rows`` only.

    The states of linear attention, and the rows that a convolution along the tokens goes on from,
    are a group behind those of windows: a block holds what is behind its last token. Their layers
    come behind those of attention.

    The keys and values of an encoder's states, which ``optc::CrossAttention`` reads, become pools
    of a last group, which steps do not write.

    Options:
        tree: The rows of a sequence may form a tree: the input ``tree_parent`` is added.
        dtype: What the pools hold: ``float32``; ``bfloat16``, queries and softmax weights rounded
            to it, too; ``float16``, of the same bytes and eight times as exact, values at most
            65504, which engines of TVM for CPUs and of ONNX Runtime for CUDA keep in pages;
            ``int8``, symmetric, with one float32 scale for each token and KV head
            of K and of V; or ``int4``, which groups of 16 channels share scales and zero points in
            (`optc.ir.functions.int4_groups`). New rows are read back from the pools like all
            others.
        query_bits: 8: with int8 or int4 pools, queries are rounded to int8, too, one scale for each
            row and head, as SageAttention does (Zhang et al., 2024); 0: they are not. Pools of
            other types go without.
        recent: With int4 pools, how many of its latest tokens a row reads from int8 pools of their
            own, as if of a layer with a window of so many; 0: none (ADR 0137). Pools of other types
            go without.
        int8_window: With int4 pools, layers whose rows see at most so many tokens have int8 pools
            instead: their memory does not grow with the context, and int4 would lose much for
            little. 0: none.
        int8_layers: With int4 pools, numbers of attentions, in graph order from 0, that have int8
            pools alone instead; ``allocate-kv`` finds those that lose most. A model of the first
            layers of another one ignores the others.
    """

    name: ClassVar[str] = "kv-cache"
    phase: ClassVar[Phase] = Phase.CACHE
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)
    gives: ClassVar[type[Form]] = RaggedStep
    #: the walk to the last norm and the token-wise check read float operators
    before: ClassVar[tuple[str, ...]] = ("quantize-weights", "cast-weights")

    dtype: str = "float32"
    tree: bool = False
    query_bits: int = 0
    recent: int = 0
    int8_window: int = 0
    int8_layers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse other types.

        Raises:
            InputError: ``dtype`` or ``query_bits`` is none that there is; ``recent``,
                ``int8_window`` or one of ``int8_layers`` is negative.
            UnsupportedError: ``dtype`` has too few bits to be worth its loss.
        """
        if self.dtype in _TOO_FEW_BITS:
            raise UnsupportedError(
                f"{self.dtype} KV is refused: keys and values of fewer than 4 bits lose too much",
                where=f"pass {self.name}",
                hint="use kv-cache.dtype=int4 with balance-keys before it, as the recipe kv-int4"
                " does",
            )
        self.check_option("dtype", _TYPES)
        hint = "8 rounds queries to int8 where pools hold int8, 0 does not"
        self.check_option("query_bits", (0, 8), hint)
        for option in ("recent", "int8_window"):
            if (value := getattr(self, option)) < 0:
                raise InputError(f"{option}={value} is negative", where=f"pass {self.name}")
        if any(layer < 0 for layer in self.int8_layers):
            raise InputError("int8_layers has a negative number", where=f"pass {self.name}")

    def requires(self, model: ir.Model) -> None:
        """The model has at least one attention, of any kind.

        Raises:
            InputError: It has none.
        """
        if not any(is_op(node, *_MIXERS, domain=DOMAIN) for node in model.graph):
            raise InputError(
                "the model has no optc::Attention",
                where="pass kv-cache",
                hint="import it as a decoder, or leave kv-cache out",
            )

    def ensures(self, model: ir.Model) -> None:
        """No dense attention is left."""
        if any(is_op(node, *_MIXERS, "CausalConv", domain=DOMAIN) for node in model.graph):
            raise RuntimeError("kv-cache left a dense attention")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            UnsupportedError: A node is not token-wise, or a KV width is unknown.
        """
        report = PassReport()
        attentions = [n for n in model.graph if is_op(n, "Attention", domain=DOMAIN)]
        kept = [self.kept_of(node, at) for at, node in enumerate(attentions)]
        convolutions = Convolutions.of(model.graph, tree=self.tree)
        recurrences = Recurrences.of(model.graph, tree=self.tree)
        windows = windows_of(kept)
        states = len(windows)  # the number of their group
        slots = recurrences.slots or convolutions.slots
        windows = (*windows, *((WINDOW,) if slots else ()))
        cross = take_cross(model.graph, len(windows), self.dtype)
        collapse(model)
        step = _replace_inputs(model.graph, tree=self.tree)
        layers = [
            layer_of(node, windows.index(one.window), one.dtype)
            for node, one in zip(attentions, kept, strict=True)
        ]
        latest = [index for index, one in enumerate(kept) if one.recent]
        layers += [recent_layer(layers[i], windows.index(kept[i].recent)) for i in latest]
        pools = [add_pools(model.graph, index, layer) for index, layer in enumerate(layers)]
        for index, node in enumerate(attentions):
            entries = [index]
            if index in latest:
                entries.append(len(attentions) + latest.index(index))
            _page(model, node, self, step, {at: (layers[at], pools[at]) for at in entries})
            report.add(_label(node))
        for kind, paged, nodes, found in (
            ("convolution", ROWS, convolutions.nodes, convolutions.layers(states, slots)),
            ("linear attention", STATES, recurrences.nodes, recurrences.layers(states)),
        ):
            pools += paged.page(model, nodes, found, step, len(layers))
            layers += found
            if found:
                report.add(kind, len(found))
        model.graph.outputs.extend(_results(model.graph, pools))
        page_cross(model, cross, step, len(layers))
        if cross.layers:
            windows, layers = (*windows, 0), [*layers, *cross.layers]
            report.add("attention to an encoder", len(cross.layers))
        gather_logit_rows(model.graph, step["logit_rows"])
        kv = KVPools.grouped_by_window(windows, tuple(layers))
        kv = kv.with_states(states, slots) if slots else kv
        RaggedStep(kv, self.tree, features=FEATURES in step, encoded=cross.states).attach(model)
        remove_unused(model)
        report.facts = {"groups": kv.stated()["groups"], "layers": len(attentions)}
        report.facts |= {"dtype": self.dtype, "query_bits": self.query_bits, "tree": self.tree}
        if self.dtype == "int4":
            stated = {"recent": self.recent, "int8_window": self.int8_window}
            report.facts |= {option: value for option, value in stated.items() if value}
            report.facts |= {"int8_layers": list(self.int8_layers)} if self.int8_layers else {}
        return report

    def kept_of(self, node: ir.Node, number: int) -> Kept:
        """The pools of the attention ``node``, the ``number``-th of the graph."""
        if self.dtype != "int4":
            return kept_of(node, self.dtype)
        alone = number in self.int8_layers
        return kept_of(node, self.dtype, self.recent, self.int8_window, int8=alone)


def _label(node: ir.Node) -> str:
    stated = ((name, node.attributes.get_int(name, 0)) for name in ("window", "chunk"))
    return ", ".join(f"{name} {size}" for name, size in stated if size) or "full attention"


def _replace_inputs(graph: ir.Graph, *, tree: bool) -> dict[str, ir.Value]:
    """Rename the dense inputs to tokens and positions [T] and append the step's other inputs."""
    int32 = ir.TensorType(ir.DataType.INT32)
    for value, name in zip(graph.inputs[:2], ("tokens", "positions"), strict=True):
        value.name, value.shape = name, ir.Shape(["T"])
        narrow_to_int32(graph, value)
    for value in graph.inputs[2:]:  # features
        value.shape = ir.Shape(["T", width(value)])
    added = {**_STEP_SHAPES, **({TREE_PARENT: ("T",)} if tree else {})}
    for name, shape in added.items():
        graph.inputs.append(ir.Value(name=name, type=int32, shape=ir.Shape(shape)))
    return {str(value.name): value for value in graph.inputs}


def _page(
    model: ir.Model,
    node: ir.Node,
    options: KVCache,
    step: dict[str, ir.Value],
    entries: dict[int, tuple[LayerKV, list[ir.Value]]],
) -> None:
    """Replace one attention by its paged form over its entries of the form's layers: its own, and
    that of its latest tokens if they have pools."""
    (index, (layer, _)), *latest = entries.items()
    attributes = attributes_of(node) | {
        "group": layer.group,
        "layer": index,
        "kv_dtype": layer.dtype,
        "query_bits": options.query_bits if layer.dtype in ("int8", "int4") else 0,
    }
    for at, (one, _) in latest:
        attributes |= {
            "recent": options.recent,
            "recent_group": one.group,
            "recent_layer": at,
        }
    pools, *recent = (values for _, values in entries.values())
    names = ("slot_mapping", "query_starts", "kv_lengths", "block_tables", TREE_PARENT)
    where = [step.get(name) for name in names]
    by_head = [operand(node, name) for name in ("sinks", "alibi_slopes", "distance_bias")]
    inputs = [*node.inputs[:3], *pools, *where, *by_head, *(v for values in recent for v in values)]
    name = node.name or f"attention.{index}"
    paged = make_node(model, "PagedAttention", inputs, attributes, name=name)
    shape = ir.Shape(["T", int(attributes["num_heads"]) * layer.value_dim])
    written = [value for _, values in entries.values() for value in values]
    for value, pool in zip(paged.outputs[1:], written, strict=True):
        value.name, value.shape = f"{pool.name}.out", pool.shape
    replace_node([node], [paged], node.outputs, paged.outputs[:1])
    paged.outputs[0].shape = shape


def _results(graph: ir.Graph, pools: list[list[ir.Value]]) -> list[ir.Value]:
    """The pools as attentions leave them, in the order of ``pools``."""
    by_name = {value.name: value for node in graph for value in node.outputs}
    return [by_name[f"{pool.name}.out"] for pair in pools for pool in pair]
