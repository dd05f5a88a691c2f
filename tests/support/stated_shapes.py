"""Do the shapes that a graph states hold? Every value of it is computed and looked at."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx_ir as ir

from tests.support.ragged import Array, run


def wrong_shapes(model: ir.Model, inputs: Mapping[str, Array]) -> list[str]:
    """Values that have another rank, another size, or, of one name, different sizes."""
    proto = ir.to_proto(model)
    stated = {
        str(value.name): value.shape
        for node in model.graph
        for value in node.outputs
        if value.name and value.shape is not None
    }
    known = {value.name for value in proto.graph.output}
    proto.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in stated if name not in known
    )
    names = [value.name for value in proto.graph.output]
    found = dict(zip(names, run(ir.from_proto(proto), inputs), strict=True))
    sizes: dict[str, int] = {}
    for value in model.graph.inputs:
        if value.name in inputs and value.shape is not None:
            sizes |= _named(value.shape, inputs[value.name].shape)
    wrong = []
    for name, shape in stated.items():
        real = found[name].shape
        for dim, size in _named(shape, real).items():
            sizes.setdefault(dim, size)
        wanted = [d if isinstance(d, int) else sizes.get(str(d.value)) for d in shape]
        held = len(wanted) == len(real) and all(
            one in (None, size) for one, size in zip(wanted, real, strict=True)
        )
        if not held:
            wrong.append(f"{name} states {shape} and is {list(real)}")
    return wrong


def _named(shape: ir.Shape, real: tuple[int, ...]) -> dict[str, int]:
    """Sizes of dimensions by name."""
    return {
        str(dim.value): size
        for dim, size in zip(shape, real, strict=False)
        if isinstance(dim, ir.SymbolicDim) and dim.value is not None
    }
