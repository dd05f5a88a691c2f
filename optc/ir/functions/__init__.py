"""Operators of the domain ``optc`` as model-local functions (docs/normal-form.md).

Every operator's meaning is a function body in standard operators (opset 23, the slot form 24), so
that a model at any stage runs in ONNX Runtime as it is. A function is one *overload* per
configuration: the attributes' values and which optional inputs are present are written into the
body, and the overload's name is a digest of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points

import onnx.parser
import onnx_ir as ir

from optc.errors import UnavailableError
from optc.ir.functions import (
    adapters,
    block_fp4,
    codebook,
    experts,
    hadamard,
    heads,
    layer_norms,
    packed_rows,
    quantized,
    router,
    token_wise,
)
from optc.ir.functions.mixing import attention, convolution, cross_attention, recurrence
from optc.ir.functions.operator import Attributes, AttributeValue, Operator
from optc.registry import load_point

__all__ = [
    "DOMAIN",
    "OPERATORS",
    "AttributeValue",
    "Operator",
    "attributes_of",
    "ensure_function",
    "function_text",
    "is_op",
    "make_node",
    "operand",
    "prune_functions",
]

DOMAIN = "optc"


def _installed(own: Mapping[str, Operator]) -> Iterator[Operator]:
    """Operators of packages that are installed beside optc.

    Raises:
        UnavailableError: A package cannot be loaded, or has an operator of a name that is taken.
    """
    names = set(own)
    for point in sorted(entry_points(group="optc.operators"), key=lambda point: point.name):
        for operator in load_point(point, lambda module: tuple(module.OPERATORS)):
            if operator.name in names:
                raise UnavailableError(
                    f"there is another operator {operator.name!r}",
                    where=f"entry point {point.name} = {point.value}",
                    hint="uninstall the package that has it",
                )
            names.add(operator.name)
            yield operator


_OWN: Mapping[str, Operator] = {
    operator.name: operator
    for operator in (
        *token_wise.OPERATORS,
        *attention.OPERATORS,
        *cross_attention.OPERATORS,
        *convolution.OPERATORS,
        *recurrence.OPERATORS,
        *hadamard.OPERATORS,
        *quantized.OPERATORS,
        *layer_norms.OPERATORS,
        *packed_rows.OPERATORS,
        *block_fp4.OPERATORS,
        *codebook.OPERATORS,
        *adapters.OPERATORS,
        *heads.OPERATORS,
        *router.OPERATORS,
        *experts.OPERATORS,
    )
}
#: Every operator of the domain by name.
OPERATORS: Mapping[str, Operator] = {**_OWN, **{one.name: one for one in _installed(_OWN)}}

_DTYPES = {
    "float": ir.DataType.FLOAT,
    "int8": ir.DataType.INT8,
    "int16": ir.DataType.INT16,
    "int32": ir.DataType.INT32,
}


def function_text(
    op_type: str, attributes: Attributes, present: Sequence[bool] | None = None
) -> tuple[str, str]:
    """The overload name and the function as ONNX text for one configuration.

    Args:
        op_type: Operator of the domain ``optc``.
        attributes: Exactly the operator's attributes.
        present: For each formal input whether it is given; all by default.

    Raises:
        ValueError: Unknown attributes, wrong types, or a required input that is absent.
    """
    operator = OPERATORS[op_type]
    operator.check(attributes)
    given = _present(operator, present)
    stated = operator.stated(attributes)
    meaning = {k: v for k, v in sorted(stated.items()) if k not in operator.inert}
    key = json.dumps([op_type, meaning, sorted(given)])
    overload = "c" + hashlib.sha256(key.encode()).hexdigest()[:10]
    names = [name for name in (*operator.attributes, *operator.defaults) if name in stated]
    declared = f" <{', '.join(names)}>" if names else ""
    text = (
        f'<opset_import: ["" : {operator.opset}], domain: "{DOMAIN}", overload: "{overload}">\n'
        f"{op_type}{declared} ({', '.join(operator.input_names)})"
        f" => ({', '.join(operator.results(stated, given))})\n"
        f"{{\n{operator.body({**operator.defaults, **stated}, given)}\n}}"
    )
    return overload, text


def _present(operator: Operator, present: Sequence[bool] | None) -> frozenset[str]:
    names = operator.input_names
    flags = [True] * len(names) if present is None else list(present)
    flags += [False] * (len(names) - len(flags))
    if len(flags) != len(names):
        raise ValueError(f"optc::{operator.name} takes at most {len(names)} inputs")
    missing = [f for f, given in zip(operator.inputs, flags, strict=True) if not given]
    if any(not name.endswith("?") for name in missing):
        raise ValueError(f"optc::{operator.name} needs inputs {', '.join(missing)}")
    return frozenset(name for name, given in zip(names, flags, strict=True) if given)


def ensure_function(
    model: ir.Model,
    op_type: str,
    attributes: Attributes,
    present: Sequence[bool] | None = None,
) -> str:
    """Add the function of this configuration to ``model`` if it lacks it; returns its overload.

    The model gets the standard operators' version that the body needs, if its own is older.

    Args: as for `function_text`, which also says what is raised.
    """
    overload, text = function_text(op_type, attributes, present)
    identifier = (DOMAIN, op_type, overload)
    if identifier not in model.functions:
        model.functions[identifier] = ir.from_proto(onnx.parser.parse_function(text))
    model.opset_imports[DOMAIN] = 1
    model.opset_imports[""] = max(model.opset_imports.get("", 0), OPERATORS[op_type].opset)
    return overload


def make_node(
    model: ir.Model,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    attributes: Attributes | None = None,
    *,
    outputs: Sequence[str] | None = None,
    shapes: Sequence[Sequence[int | str]] | None = None,
    name: str | None = None,
) -> ir.Node:
    """A node of the domain ``optc`` with its function in ``model``; the caller inserts it.

    Args:
        model: Gets the function.
        op_type: Operator of the domain.
        inputs: Operands in the operator's order; None where an optional one is absent.
        attributes: Exactly the operator's attributes.
        outputs: Names of the output values; left to the graph when not given.
        shapes: Shapes of the output values, symbolic dimensions as text.
        name: Name of the node, for messages.
    """
    attributes = attributes or {}
    operator = OPERATORS[op_type]
    operands = list(inputs)
    while operands and operands[-1] is None:
        operands.pop()
    flags = [v is not None for v in operands]
    overload = ensure_function(model, op_type, attributes, flags)
    values = []
    results = operator.results(attributes, _present(operator, flags))
    for index, kind in enumerate(results.values()):
        value = ir.Value(
            name=outputs[index] if outputs else None, type=ir.TensorType(_DTYPES[kind])
        )
        if shapes:
            value.shape = ir.Shape(shapes[index])
        values.append(value)
    return ir.Node(
        DOMAIN,
        op_type,
        operands,
        ir.convenience.convert_attributes(operator.stated(attributes)),
        overload=overload,
        outputs=values,
        name=name,
    )


def is_op(node: ir.Node | None, *op_types: str, domain: str = "") -> bool:
    """True if ``node`` is one of ``op_types`` of ``domain`` (standard operators by default)."""
    return node is not None and node.op_type in op_types and (node.domain or "") == domain


def operand(node: ir.Node, name: str) -> ir.Value | None:
    """The input of an optc operator by its formal name; None if it is left out."""
    index = OPERATORS[node.op_type].input_names.index(name)
    return node.inputs[index] if index < len(node.inputs) else None


def attributes_of(node: ir.Node) -> dict[str, AttributeValue]:
    """The attributes that the node states, as Python values (ints, floats and strings)."""
    return {name: attribute.value for name, attribute in node.attributes.items()}


def prune_functions(model: ir.Model) -> None:
    """Drop the functions that no node of the graph calls (bodies call no function of ours)."""
    used = {node.op_identifier() for node in model.graph.all_nodes()}
    for identifier in [key for key in model.functions if key not in used]:
        del model.functions[identifier]
