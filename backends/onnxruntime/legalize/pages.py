"""`ort-pages`: attention over pages by ``com.microsoft::PagedAttention``, which CUDA alone has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import onnx_ir as ir

from optc.backends.onnxruntime.legalize.attention import spelled_out
from optc.backends.onnxruntime.legalize.positions import RotaryTables
from optc.errors import UnsupportedError
from optc.ir.forms.engine import EngineForm
from optc.ir.forms.form import Form
from optc.ir.forms.ragged import RaggedStep
from optc.ir.functions import DOMAIN, attributes_of, is_op
from optc.ir.graph import remove_unused, replace_node
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport

CONTRIB = "com.microsoft"
#: Type of the pools by which a model asks for pages.
PAGED_TYPE = "float16"
#: Inputs of the model instead of ``query_starts`` and ``kv_lengths``, int32 [B+1] and, in host
#: memory, [2]: upper bounds of a sequence's new rows and of its tokens.
STARTS, BOUNDS = "cumulative_sequence_length", "attention_metadata"
_ATTENTIONS = ("PagedAttention", "RotaryPagedAttention")
_REPLACED = ("slot_mapping", "query_starts", "kv_lengths", "block_tables")


def is_paged(node: ir.Node) -> bool:
    """True if a node of the ragged step is attention that asks for pages."""
    wanted = node.attributes.get_string("kv_dtype", "") == PAGED_TYPE
    return is_op(node, *_ATTENTIONS, domain=DOMAIN) and wanted


def group_input(name: str, group: int) -> str:
    """The model's input ``past_seqlens``, ``block_table`` or ``slot_mapping`` of a KV group."""
    return f"{name}.{group}"


def pool_input(kind: str, layer: int) -> str:
    """The model's pool ``key`` or ``value`` [blocks, block_size, Hkv, D] of a layer."""
    return f"{kind}_cache.{layer}"


@dataclass(frozen=True)
class PagedAttentionOperator(Pass):
    """Attention of the ragged step becomes one operator on the engine's own pages.

    Legal cases: keys and values of one width, a multiple of 8; head norms of both or none; rotary
    embedding of all of a head or none, by tables that follow from positions alone.

    Attributes:
        positions: Rows of the rotary tables.
    """

    name: ClassVar[str] = "ort-pages"
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (RaggedStep,)
    gives: ClassVar[type[Form]] = EngineForm

    positions: int = 0

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            UnsupportedError: An attention is none of the legal cases, or something else reads the
                step's block tables.
        """
        report = PassReport()
        step = RaggedStep.read(model)
        work = _Work(model, RotaryTables(model, self.positions), len(step.kv.groups))
        for node in [n for n in model.graph if is_op(n, *_ATTENTIONS, domain=DOMAIN)]:
            work.replace(node)
            report.add("attention")
        work.replace_inputs()
        EngineForm(step.kv.with_dtype(PAGED_TYPE)).attach(model)
        model.opset_imports[CONTRIB] = 1
        remove_unused(model)
        return report


class _Work:
    def __init__(self, model: ir.Model, tables: RotaryTables, groups: int) -> None:
        self._graph = model.graph
        self._tables = tables
        self._starts = _int32(STARTS, ["B+1"])
        self._bounds = _int32(BOUNDS, [2])
        self._groups = [
            {
                "past_seqlens": _int32(group_input("past_seqlens", g), ["B"]),
                "block_table": _int32(group_input("block_table", g), ["B", "P"]),
                "slot_mapping": _int32(group_input("slot_mapping", g), ["T"]),
            }
            for g in range(groups)
        ]
        self._pools: list[ir.Value] = []

    def replace(self, node: ir.Node) -> None:
        attributes = attributes_of(node)
        merged = node.op_type == "RotaryPagedAttention"
        inputs = list(node.inputs)
        absent: list[ir.Value | None] = [None, None]
        if merged:
            operands, angles, norms, pools = (
                [inputs[0], *absent], inputs[1:3], inputs[3:5], inputs[5:7]
            )  # fmt: skip
        else:
            operands, angles, norms, pools = inputs[:3], absent, absent, inputs[3:5]
        head = _check(node, attributes, norms, pools)
        layer = int(attributes["layer"])
        index = int(attributes["group"])
        heads = int(attributes["kv_num_heads"])
        shape: list[int | str] = [f"blocks.{index}", f"block_size.{index}", heads, head]
        caches = [_pool(pool_input(kind, layer), shape) for kind in ("key", "value")]
        rotary = [self._table(node, value) for value in angles]
        group = self._groups[index]
        options = _options(attributes, rotated=rotary[0] is not None, normed=norms[0] is not None)
        new = ir.Node(
            CONTRIB,
            "PagedAttention",
            [
                *operands,
                *caches,
                self._starts,
                group["past_seqlens"],
                group["block_table"],
                *rotary,
                group["slot_mapping"],
                None,  # head_sink
                *norms,
                None,  # k_scale
                None,  # v_scale
                self._bounds,
            ],
            ir.convenience.convert_attributes(options),
            num_outputs=3,
            name=node.name,
        )
        shapes = [node.outputs[0].shape, *(cache.shape for cache in caches)]
        replace_node([node], [new], node.outputs, new.outputs)
        for value, dims in zip(new.outputs, shapes, strict=True):
            value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), dims
        for value, cache in zip(new.outputs[1:], caches, strict=True):
            value.name = f"{cache.name}.out"
        self._pools += caches

    def replace_inputs(self) -> None:
        """The step's inputs and pools go away, those of the operator come."""
        inputs = self._graph.inputs
        for value in [v for v in inputs if v.name in _REPLACED or "_pool." in str(v.name)]:
            if value.uses():
                user = next(iter(value.consumers()))
                raise UnsupportedError(
                    f"{user.op_type} uses {value.name}", where=f"pass ort-pages, node {user.name}"
                )
            inputs.remove(value)
        of_groups = [value for group in self._groups for value in group.values()]
        inputs.extend([self._starts, self._bounds, *of_groups, *self._pools])

    def _table(self, node: ir.Node, value: ir.Value | None) -> ir.Value | None:
        if value is None:
            return None
        table = self._tables.table(value)
        if table is None:
            raise _refusal(node, "its rotary tables follow from more than positions")
        return table


def _options(attributes: dict[str, Any], *, rotated: bool, normed: bool) -> dict[str, Any]:
    """The operator's attributes."""
    options: dict[str, Any] = {
        "num_heads": int(attributes["num_heads"]),
        "kv_num_heads": int(attributes["kv_num_heads"]),
        "scale": float(attributes["scale"]),
        "softcap": float(attributes["softcap"]),
        "local_window_size": int(attributes["window"]) or -1,
    }
    if rotated:
        options |= {"do_rotary": 1, "rotary_interleaved": int(attributes["interleaved"])}
    if normed:
        options["qk_norm_epsilon"] = float(attributes["epsilon"])
    return options


def _check(
    node: ir.Node,
    attributes: dict[str, Any],
    norms: list[ir.Value | None],
    pools: list[ir.Value | None],
) -> int:
    """The width of a head.

    Raises:
        UnsupportedError: The operator does not take this attention.
    """
    if reason := spelled_out(node):
        raise _refusal(node, reason)
    widths = {pool.shape[3] for pool in pools if pool is not None and pool.shape is not None}
    if len(widths) != 1:
        raise _refusal(node, "keys and values are not of one width")
    head = widths.pop()
    if not isinstance(head, int) or head % 8:
        raise _refusal(node, f"a head is {head} wide, no multiple of 8")
    if attributes.get("rotary_embedding_dim", 0) not in (0, head):
        raise _refusal(node, "only a part of each head is rotated")
    if (norms[0] is None) != (norms[1] is None):
        raise _refusal(node, "either queries or keys are normalized, not both")
    return head


def _refusal(node: ir.Node, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"PagedAttention does not take this attention: {why}",
        where=f"onnxruntime backend, node {node.name}",
        hint="--set kv-cache.dtype=float32 keeps each sequence in a slot instead",
    )


def _int32(name: str, shape: list[int | str]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape(shape))


def _pool(name: str, shape: list[int | str]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(shape))
