"""Shapes that a file states for values that its nodes compute: they may be wrong, or missing."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from optc.system.logs.quiet import quiet


def corrected_shapes(model: ir.Model) -> tuple[str, ...]:
    """Replace stated shapes that contradict what follows from the inputs' shapes, and add missing
    ones of outputs.

    Engines run such files, as they infer shapes themselves; a pass that believes a wrong number of
    axes takes a Reshape for idle. What cannot be inferred, behind operators that ONNX does not
    know, stays as it is stated.

    Returns:
        Warnings about outputs of the graph.
    """
    inferred = _inferred(model)
    outputs = {value.name for value in model.graph.outputs}
    warnings = []
    for value in (value for node in model.graph for value in node.outputs):
        found, stated, shown = inferred.get(value.name), value.shape, value.name in outputs
        if found is None or not (shown if stated is None else _contradict(stated, found)):
            continue
        value.shape = ir.Shape([dim if isinstance(dim, int) else None for dim in found])
        if shown and stated is not None:
            warnings.append(
                f"the file states the shape {_text(stated)} for its output {value.name}, which is "
                f"of the shape {_text(value.shape)}"
            )
    return tuple(warnings)


def _inferred(model: ir.Model) -> dict[str | None, ir.Shape]:
    bare = model.clone()
    values = [value for node in bare.graph for value in node.outputs]
    for value in values:
        value.shape = None
    with quiet():  # where it fails, all stays as it is stated
        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(bare)
    values = [value for node in bare.graph for value in node.outputs]
    return {value.name: value.shape for value in values if value.shape is not None}


def _contradict(stated: ir.Shape, found: ir.Shape) -> bool:
    if len(stated) != len(found):
        return True
    both = zip(stated, found, strict=True)
    return any(isinstance(a, int) and isinstance(b, int) and 0 <= a != b for a, b in both)


def _text(shape: ir.Shape) -> str:
    dims = (str(dim if isinstance(dim, int) else dim.value or "?") for dim in shape)
    return f"[{', '.join(dims)}]"
