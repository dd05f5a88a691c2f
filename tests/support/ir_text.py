"""IR tests as text: models from ONNX text, and the nodes of a model as ONNX text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.functions import ensure_function
from optc.ir.weights import as_lazy

Array = npt.NDArray[Any]


def model_of(signature: str, nodes: str, weights: Mapping[str, Array] | None = None) -> ir.Model:
    """A model from a graph signature, nodes, and weights as the graph sees them.

    Two-dimensional weights become transposed `LazyWeight`s, as MatMul operands are; nodes of the
    domain ``optc`` get their functions.
    """
    weights = weights or {}
    header = '<ir_version: 10, opset_import: ["" : 23, "optc" : 1]>'
    kinds = {"f": "float", "i": "int64"}
    declared = "".join(
        f", {kinds[array.dtype.kind]}[{','.join(map(str, array.shape))}] {name}"
        for name, array in weights.items()
    )
    model = ir.from_onnx_text(
        f"{header}\n{signature.replace(') =>', declared + ') =>')}\n{{{nodes}}}"
    )
    for value in [v for v in model.graph.inputs if v.name in weights]:
        tensor = ir.tensor(weights[str(value.name)], name=value.name)
        linear = weights[str(value.name)].ndim == 2 and tensor.dtype == ir.DataType.FLOAT
        value.const_value = as_lazy(tensor, transposed=True) if linear else tensor
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    for node in model.graph:
        if node.domain == "optc":
            attributes = {name: a.value for name, a in node.attributes.items()}
            present = [v is not None for v in node.inputs]
            node.overload = ensure_function(model, node.op_type, attributes, present)
    return model


def nodes_text(model: ir.Model) -> str:
    """The nodes as ONNX text, without node names, overloads and quotes; one a line."""
    text = ir.to_onnx_text(model, exclude_initializers=True)
    body = re.search(r"[ \n]\{\n(.*?)\n\}", text, re.DOTALL)
    assert body is not None
    lines = [re.sub(r"^\s*\[[^]]*\] ", "", line) for line in body[1].splitlines()]
    lines = [re.sub(r"^\s*", "", line) for line in lines]
    joined = "\n".join(re.sub(r"(optc\.\w+):c[0-9a-f]{10}", r"\1", line) for line in lines)
    return joined.replace('"', "").replace(": int =", " =").replace(": float =", " =")


def expected(text: str) -> str:
    """A text block of a test, dedented, lines ending in a backslash joined."""
    return textwrap.dedent(text).strip().replace("\\\n", "")


def f32(*shape: int, seed: int = 0) -> Array:
    """Seeded normal float32 values."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)
