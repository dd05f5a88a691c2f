"""`kv-cache`: turn the cache-less dense form into the ragged step over paged KV pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.errors import InputError, UnsupportedError
from optc.executable.executable import INT4_GROUP, LayerKV
from optc.forms.decoder import FEATURES, Dense
from optc.forms.form import Form
from optc.forms.kv_pools import KVPools
from optc.forms.ragged import TREE_PARENT, RaggedStep
from optc.ir.functions import DOMAIN, attributes_of, is_op, make_node, operand
from optc.ir.graph import remove_unused, replace_node, width
from optc.passes.kv_cache.logit_rows import gather_logit_rows
from optc.passes.kv_cache.token_rows import collapse, narrow_to_int32
from optc.pipeline.base import Pass, PassReport

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

    Options:
        tree: The rows of a sequence may form a tree: the input ``tree_parent`` is added.
        dtype: What the pools hold: ``float32``; ``bfloat16``, queries and softmax weights rounded
            to it, too; ``float16``, which ONNX Runtime's engines for CUDA keep in pages, and no
            other engine; ``int8``, symmetric, with one float32 scale for each token and KV head
            of K and of V; or ``int4``, which groups of 16 channels share scales and zero points in
            (`optc.ir.functions.int4_groups`). New rows are read back from the pools like all
            others.
        query_bits: 8: with int8 or int4 pools, queries are rounded to int8, too, one scale for each
            row and head, as SageAttention does (Zhang et al., 2024); 0: they are not. Pools of
            other types go without.
    """

    name: ClassVar[str] = "kv-cache"
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (Dense,)
    gives: ClassVar[type[Form]] = RaggedStep
    #: the walk to the last norm and the token-wise check read float operators
    before: ClassVar[tuple[str, ...]] = ("quantize-weights", "cast-weights")

    dtype: str = "float32"
    tree: bool = False
    query_bits: int = 0

    def __post_init__(self) -> None:
        """Refuse other types.

        Raises:
            InputError: ``dtype`` or ``query_bits`` is none that there is.
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

    def requires(self, model: ir.Model) -> None:
        """The model has at least one attention.

        Raises:
            InputError: It has none.
        """
        if not any(is_op(node, "Attention", domain=DOMAIN) for node in model.graph):
            raise InputError(
                "the model has no optc::Attention",
                where="pass kv-cache",
                hint="import it as a decoder, or leave kv-cache out",
            )

    def ensures(self, model: ir.Model) -> None:
        """No dense attention is left."""
        if any(is_op(node, "Attention", domain=DOMAIN) for node in model.graph):
            raise RuntimeError("kv-cache left a dense attention")

    def run(self, model: ir.Model) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            UnsupportedError: A node is not token-wise, or a KV width is unknown.
        """
        report = PassReport()
        attentions = [n for n in model.graph if is_op(n, "Attention", domain=DOMAIN)]
        windows = tuple(sorted({_kept(n) for n in attentions}))
        collapse(model)
        step = _replace_inputs(model.graph, tree=self.tree)
        layers = []
        for index, node in enumerate(attentions):
            group = windows.index(_kept(node))
            layers.append(_page(model, node, self, index, group, step))
            report.add(_label(node))
        gather_logit_rows(model.graph, step["logit_rows"])
        pools = KVPools.grouped_by_window(windows, tuple(layers))
        RaggedStep(pools, self.tree, features=FEATURES in step).attach(model)
        remove_unused(model)
        report.facts = {"groups": pools.stated()["groups"], "layers": len(layers)}
        report.facts |= {"dtype": self.dtype, "query_bits": self.query_bits, "tree": self.tree}
        return report


def _kept(node: ir.Node) -> int:
    """Tokens that an attention's rows reach back, themselves included; 0 is all."""
    sizes = (node.attributes.get_int(name, 0) for name in ("window", "chunk"))
    return min(filter(None, sizes), default=0)


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
    layer: int,
    group: int,
    step: dict[str, ir.Value],
) -> LayerKV:
    """Replace one attention by its paged form; returns the shape of the layer's KV."""
    bits = options.query_bits if options.dtype in ("int8", "int4") else 0
    attributes = attributes_of(node)
    kv_heads = int(attributes["kv_num_heads"])
    dims = {"k": _head_width(node, 1, kv_heads), "v": _head_width(node, 2, kv_heads)}
    if options.dtype == "int4":
        _check_groups(node, dims)
    float32 = ir.TensorType(ir.DataType.FLOAT)
    pools = {}
    for kind, dim in dims.items():
        shape = ir.Shape([f"blocks_{group}", kv_heads, "block_size", dim])
        pools[kind] = ir.Value(name=f"{kind}_pool.{layer}", type=float32, shape=shape)
        model.graph.inputs.append(pools[kind])
    paged = make_node(
        model,
        "PagedAttention",
        [
            *node.inputs[:3],
            *pools.values(),
            step["slot_mapping"],
            step["query_starts"],
            step["kv_lengths"],
            step["block_tables"],
            step.get(TREE_PARENT),
            operand(node, "sinks"),
            operand(node, "alibi_slopes"),
        ],
        {
            **attributes,
            "group": group,
            "layer": layer,
            "kv_dtype": options.dtype,
            "query_bits": bits,
        },
        name=node.name or f"attention.{layer}",
    )
    paged.outputs[0].shape = ir.Shape(["T", int(attributes["num_heads"]) * dims["v"]])
    for value, (kind, pool) in zip(paged.outputs[1:], pools.items(), strict=True):
        value.name, value.shape = f"{kind}_pool.{layer}.out", pool.shape
        model.graph.outputs.append(value)
    shape = paged.outputs[0].shape
    replace_node([node], [paged], node.outputs, paged.outputs[:1])
    paged.outputs[0].shape = shape
    return LayerKV(group, kv_heads, dims["k"], dims["v"], options.dtype)


def _check_groups(node: ir.Node, dims: dict[str, int]) -> None:
    """Keys and values divide into pairs of groups, as int4 pools hold them."""
    for kind, dim in dims.items():
        if dim % (2 * INT4_GROUP):
            raise UnsupportedError(
                f"int4 KV takes head dimensions that are multiples of {2 * INT4_GROUP}, not {dim}"
                f" ({kind})",
                where=f"pass kv-cache, node {node.name or node.op_type}",
                hint="kv-cache.dtype=int8 takes any",
            )


def _head_width(node: ir.Node, index: int, kv_heads: int) -> int:
    value = node.inputs[index]
    total = width(value) if value is not None else None
    if total is None or total % kv_heads:
        raise UnsupportedError(
            f"the width of input {index} is {total}, not a multiple of {kv_heads} KV heads",
            where=f"pass kv-cache, node {node.name or node.op_type}",
            hint="the importer must state the shapes of keys and values",
        )
    return total // kv_heads
