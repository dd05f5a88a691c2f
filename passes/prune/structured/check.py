"""Checks that widths, heads, keys and values of a dense form belong together."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from optc.ir.functions import DOMAIN, is_op, operand
from optc.ir.graph import constant, constant_ints, width
from optc.ir.linear import Linear, find_linear

_NORMS = ("RMSNormalization", "LayerNormalization")


def check_structure(model: ir.Model) -> None:
    """Check every node whose operands have widths that depend on each other.

    Raises:
        RuntimeError: Two of them do not belong together; names the node.
    """
    for node in model.graph:
        linear = find_linear(node)
        problems = _of_linear(linear) if linear is not None else _of_node(node)
        for problem in problems:
            raise RuntimeError(f"{node.name or node.op_type}: {problem}")


def _of_linear(linear: Linear) -> Iterator[str]:
    rows, columns = linear.weight.rows_shape
    given = width(linear.x)
    if given is not None and given != columns:
        yield f"its input is {given} wide, its weight takes {columns}"
    if tuple(linear.initializer.shape or ()) != (columns, rows):
        yield f"its weight is [{columns}, {rows}] and says {linear.initializer.shape}"
    for node in linear.nodes:
        result = width(node.outputs[0])
        if result is not None and result != rows:
            yield f"its weight gives {rows} channels, its result says {result}"


def _of_node(node: ir.Node) -> Iterator[str]:
    if is_op(node, "Attention", domain=DOMAIN):
        yield from _of_attention(node)
    elif is_op(node, "RotaryEmbedding") or is_op(node, "HeadRMSNorm", domain=DOMAIN):
        yield from _of_heads(node)
    elif is_op(node, *_NORMS):
        yield from _equal("scale", width(_value(node, 1)), width(_value(node, 0)))
    elif is_op(node, "Add", "Sub", "Mul", "Div"):
        yield from _of_sides(node)
    elif is_op(node, "Split") and len(node.inputs) > 1:
        sizes = constant_ints(node.inputs[1])
        yield from _equal("parts together", sum(sizes or [0]), width(_value(node, 0)))


def _of_attention(node: ir.Node) -> Iterator[str]:
    heads, kv_heads = (node.attributes[n].as_int() for n in ("num_heads", "kv_num_heads"))
    if not kv_heads or heads % kv_heads:
        yield f"{heads} query heads are no groups of {kv_heads} KV heads"
        return
    q, k, v = (width(_value(node, index)) for index in range(3))
    if q is None or k is None or v is None:
        return
    if q % heads or k % kv_heads or v % kv_heads:
        yield f"queries, keys and values {q}, {k}, {v} wide are not {heads} and {kv_heads} heads"
    elif q // heads != k // kv_heads:
        yield f"queries have {q // heads} channels a head, keys {k // kv_heads}"
    else:
        yield from _equal("result", width(node.outputs[0]), v // kv_heads * heads)
        yield from _of_operands(node, heads, kv_heads)
        for name in ("sinks", "alibi_slopes"):
            given = operand(node, name)
            if given is not None:
                yield from _equal(name, width(given), heads)


def _of_operands(node: ir.Node, heads: int, kv_heads: int) -> Iterator[str]:
    """Norms and rotary embeddings before an attention have as many heads as it."""
    for index, wanted in enumerate((heads, kv_heads)):
        before = _value(node, index).producer()
        if before is not None and "num_heads" in before.attributes:
            yield from _equal(
                f"{before.name}: heads", before.attributes["num_heads"].as_int(), wanted
            )


def _of_heads(node: ir.Node) -> Iterator[str]:
    heads, size = node.attributes["num_heads"].as_int(), width(_value(node, 0))
    if size is None:
        return
    if not heads or size % heads:
        yield f"{size} channels are not {heads} heads"
    elif is_op(node, "HeadRMSNorm", domain=DOMAIN):
        yield from _equal("scale", width(_value(node, 1)), size // heads)
    elif node.attributes.get_int("rotary_embedding_dim", 0) > size // heads:
        yield f"it turns more than the {size // heads} channels of a head"


def _of_sides(node: ir.Node) -> Iterator[str]:
    sizes = {width(value) for value in node.inputs if value is not None and not _is_one(value)}
    sizes -= {None, 1}
    if len(sizes) > 1:
        yield f"its operands are {', '.join(map(str, sorted(filter(None, sizes))))} wide"


def _is_one(value: ir.Value) -> bool:
    tensor = constant(value)
    return tensor is not None and tensor.size == 1


def _equal(what: str, found: int | None, wanted: int | None) -> Iterator[str]:
    if found is not None and wanted is not None and found != wanted:
        yield f"{what}: {found}, not {wanted}"


def _value(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    if value is None:
        raise RuntimeError(f"{node.name or node.op_type}: operand {index} is absent")
    return value
