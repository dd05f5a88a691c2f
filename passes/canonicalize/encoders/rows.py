"""From [batch, tokens, …] to rows of all tokens [T, …]."""

from __future__ import annotations

import onnx_ir as ir

from optc.ir.emit import Emitter
from optc.ir.forms.packed import POSITIONS, STARTS, TOKENS, TYPES, PackedRows
from optc.ir.functions import DOMAIN, attributes_of, is_op, make_node
from optc.ir.graph import replace_node
from optc.ir.weights import as_lazy
from optc.passes.canonicalize.dataflow import dims
from optc.passes.canonicalize.encoders.source import Source
from optc.passes.canonicalize.heads import SWAP, heads_of
from optc.passes.kv_cache.token_rows import collapse, narrow_to_int32


def fold_outputs(source: Source) -> dict[str, int]:
    """Outputs [batch, heads, tokens, D] become [batch, tokens, heads * D]; their heads by name."""
    found: dict[str, int] = {}
    for index, value in enumerate(list(source.graph.outputs)):
        heads = heads_of(value)
        if heads is None or not heads.tokens_last:
            continue
        name = str(value.name)
        value.name, found[name] = f"{name}.heads", heads.count
        lead, emitter = [source.batch, source.tokens], Emitter(source.graph, f"{name}.rows")
        shape: list[int | str] = [*lead, heads.count, heads.size]
        turned = emitter.op("turned", "Transpose", [value], shape, perm=SWAP)
        joined = emitter.integers("shape", [0, 0, -1])
        inputs, shape = [turned, joined], [*lead, heads.count * heads.size]
        folded = emitter.op("folded", "Reshape", inputs, shape)
        folded.name = name
        source.graph.extend(emitter.nodes)
        source.graph.outputs[index] = folded
    return found


def pack(
    model: ir.Model, source: Source, windows: dict[str, int], heads: dict[str, int], kv_dtype: str
) -> PackedRows:
    """Collapse a dense encoder into rows; returns the form, which is stated."""
    graph = model.graph
    shapes = {v: dims(v) for node in graph for v in node.outputs}
    by_token = tuple(
        str(v.name) for v in graph.outputs if dims(v)[:2] == [source.batch, source.tokens]
    )
    _attend_both_ways(model, windows, kv_dtype)
    for node in graph:
        shapes |= {v: dims(v) for v in node.outputs if v not in shapes}
    collapse(model)
    for node in graph:
        for value in node.outputs:
            _restate(value, shapes.get(value, []), source)
    form = PackedRows(
        "" if source.patches else str(source.ids.name),
        "" if source.mask is None else str(source.mask.name),
        "" if source.types is None else str(source.types.name),
        by_token,
        source.patches,
        heads,
    )
    _name_inputs(graph, source)
    form.attach(model)
    _read_lazily(graph)
    return form


def _attend_both_ways(model: ir.Model, windows: dict[str, int], kv_dtype: str) -> None:
    starts = next(v for v in model.graph.inputs if v.name == STARTS)
    for node in [n for n in model.graph if is_op(n, "Attention", domain=DOMAIN)]:
        given = attributes_of(node)
        attributes = {name: given[name] for name in ("num_heads", "kv_num_heads", "scale")}
        attributes |= {"window": windows[str(node.name)], "kv_dtype": kv_dtype}
        operands = [*node.inputs[:3], starts]
        new = make_node(model, "PackedAttention", operands, attributes, name=node.name)
        new.outputs[0].shape = node.outputs[0].shape
        replace_node([node], [new], node.outputs, new.outputs)


def _restate(value: ir.Value, shape: list[int | str | None], source: Source) -> None:
    several = len(shape) > 1 and str(shape[1]).endswith(f"*{source.tokens}")
    if shape[:2] == [source.batch, source.tokens]:
        value.shape = ir.Shape(["T", *shape[2:]])
    elif several:
        value.shape = ir.Shape([str(shape[1]).replace(source.tokens, "T"), *shape[2:]])
    elif shape[:1] == [source.batch]:
        value.shape = ir.Shape(["B", *shape[1:]])


def _read_lazily(graph: ir.Graph) -> None:
    """The table of tokens is a weight, which passes may round."""
    for node in graph:
        table = node.inputs[0] if is_op(node, "Gather") else None
        if table is not None and table.const_value is not None and _is_tokens(node.inputs[1]):
            table.const_value = as_lazy(table.const_value)


def _is_tokens(value: ir.Value | None) -> bool:
    return value is not None and value.name == TOKENS


def _name_inputs(graph: ir.Graph, source: Source) -> None:
    """The inputs of the form, int32, in its order."""
    by_name = {str(v.name): v for v in graph.inputs}
    kept = [(by_name["position_ids"], POSITIONS)]
    kept += [(source.types, TYPES)] if source.types is not None else []
    if source.patches is None:
        kept = [(source.ids, TOKENS), *kept]
    else:
        _restate(source.ids, dims(source.ids), source)
    for value, name in kept:
        narrow_to_int32(graph, value)
        value.name, value.shape = name, ir.Shape(["T"])
    starts = by_name[STARTS]
    graph.inputs.clear()
    features = [] if source.patches is None else [source.ids]
    graph.inputs.extend([*features, *(value for value, _ in kept), starts])
