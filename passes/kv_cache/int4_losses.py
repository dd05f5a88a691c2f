"""The loss of a model by the keys and values of one layer in int4: KL, measured."""

from __future__ import annotations

from collections.abc import Sequence

import onnx.parser
import onnx_ir as ir

from optc.ir.functions import DOMAIN, attributes_of, is_op
from optc.ir.functions.int4_groups import grouped
from optc.ir.functions.operator import integers
from optc.proof.reference.variants.switch import add_switch, switch_on
from optc.runtime.executable.executable import Int32
from optc.system.hardware.target import usable_threads
from optc.system.progress import tell

_FUNCTION = "RepresentInt4"
_DOMAIN = f"{DOMAIN}.measure"


def attentions_of(model: ir.Model) -> list[ir.Node]:
    """Every ``optc::Attention``, in graph order, which numbers layers."""
    return [node for node in model.graph if is_op(node, "Attention", domain=DOMAIN)]


def int4_losses(model: ir.Model, tokens: Int32, layers: Sequence[int]) -> list[float]:
    """The KL in nats a token with the keys and values of one layer as int4 pools represent them
    (`optc.ir.functions.int4_groups`), for each of ``layers``; all else is in float32.

    Args:
        model: Dense form; it is not changed.
        tokens: Windows [W, S].
        layers: Numbers of attentions, whose heads have widths that int4 takes.

    Raises:
        optc.errors.UnsupportedError: The model cannot be cut at its layers.
    """
    from optc.proof.reference.variants.measure import measure_variants  # brings ONNX Runtime

    copy = model.clone()
    copy.opset_imports[_DOMAIN] = 1
    nodes = attentions_of(copy)
    variants = [dict.fromkeys(_add_switches(copy, nodes[at]), switch_on()) for at in layers]
    found = measure_variants(
        copy,
        tokens,
        variants,
        usable_threads(),
        lambda done, total: tell("sensitivity of keys and values", done, total),
    )
    return [float(kl) for kl in found]


def _add_switches(model: ir.Model, node: ir.Node) -> list[ir.Value]:
    """Let an attention read its keys and values as int4 represents them, by two switches."""
    heads = int(attributes_of(node)["kv_num_heads"])
    overload = _ensure_function(model, heads)
    switches = []
    for place in (1, 2):
        x = node.inputs[place]
        if x is None:
            raise ValueError(f"{node.name or node.op_type} has no input {place}")
        represent = ir.Node(_DOMAIN, _FUNCTION, [x], overload=overload)
        switch, read = add_switch(model.graph, node, x, [represent], represent.outputs[0])
        node.replace_input_with(place, read)
        switches.append(switch)
    return switches


def _ensure_function(model: ir.Model, heads: int) -> str:
    """Add the function y [B, S, H·D] of x [B, S, H·D] to the model; its overload."""
    overload = f"heads{heads}"
    statements = [
        integers("by_head", (0, 0, heads, -1)),
        integers("in_one", (0, 0, -1)),
        "x_rows = Reshape (x, by_head)",
        *grouped("x"),
        "y = Reshape (x_kept_rows, in_one)",
    ]
    text = (
        f'<opset_import: ["" : 23], domain: "{_DOMAIN}", overload: "{overload}">\n'
        f"{_FUNCTION} (x) => (y)\n{{\n" + "\n".join(statements) + "\n}"
    )
    identifier = (_DOMAIN, _FUNCTION, overload)
    if identifier not in model.functions:
        model.functions[identifier] = ir.from_proto(onnx.parser.parse_function(text))
    return overload
