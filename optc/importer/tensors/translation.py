"""Exported programs become ONNX graphs: PyTorch's own translation, and what it needs."""

from __future__ import annotations

import re
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch.export import ExportedProgram
from torch.fx import Node

from optc.errors import UnsupportedError
from optc.importer.decompose import light_decomposition
from optc.importer.tensors.modules.operators import TRANSLATIONS
from optc.importer.tensors.modules.recurrent import steps_untold
from optc.importer.tracing.shortcuts import known_results
from optc.system.logs.quiet import quiet

OPSET = 23
_ATEN = torch.ops.aten
#: Colours of a terminal, which PyTorch's messages have.
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
#: Words of the exporter's errors before what failed, and before the node where it did.
_SUMMARY, _EXECUTING = "## Exception summary", "While executing"
#: What the exporter says of an operator that it does not translate.
_MISSING = re.compile(r"No ONNX function found for <OpOverload\(op='([\w.]+)'")
_MOST_LETTERS = 300


def translated(program: ExportedProgram, name: str) -> ir.Model:
    """The graph of a program. Where PyTorch does not translate it, it is rewritten in place with
    operators of the same meaning, and translated again.

    Raises:
        UnsupportedError: An operator of it has no translation.
    """
    try:
        exported = _exported(program)
    except Exception as error:  # the exporter raises what its translations raise
        exported = _exported_again(program)
        if exported is None:
            raise UnsupportedError(
                f"PyTorch cannot translate the program to ONNX: {_reason(error)}",
                where=name,
                hint="write that operator in forward by others, or compute it before or after",
            ) from error
    if exported is None:
        raise UnsupportedError("PyTorch translated the program to nothing", where=name)
    model: ir.Model = exported.model
    # the exporter's stack traces: large, and they hold paths of this machine
    ClearMetadataAndDocStringPass()(model)
    return model


def _exported(program: ExportedProgram) -> Any:
    # Attention chooses its order of memory by whether something learns: here as in the export.
    with quiet(), torch.no_grad(), light_decomposition(), known_results(), steps_untold():
        return torch.onnx.export(
            program,
            dynamo=True,
            opset_version=OPSET,
            verbose=False,
            optimize=False,
            custom_translation_table=dict(TRANSLATIONS),
        )


def _exported_again(program: ExportedProgram) -> Any:
    if not respell(program):
        return None
    try:
        return _exported(program)
    except Exception:  # noqa: BLE001 - the first error is about what the user wrote
        return None


def respell(program: ExportedProgram) -> bool:
    """Convert x to the result's type before ``number - x``, as PyTorch does it, in place.

    Where x has integers and the number is none (the mask of a text, as old models write it), the
    exporter promotes types to a difference that does not exist.

    Returns:
        Whether there was such an operator.
    """
    found = [node for node in program.graph.nodes if _is_promoted(node)]
    for node in found:
        _convert(node)
    if found:
        program.graph_module.recompile()
    return bool(found)


def _is_promoted(node: Node) -> bool:
    """True for a number less a tensor of another type than the difference has."""
    x = node.args[0] if node.target is _ATEN.rsub.Scalar else None
    return isinstance(x, Node) and x.meta["val"].dtype != node.meta["val"].dtype


def _convert(node: Node) -> None:
    x, kind = node.args[0], node.meta["val"].dtype
    assert isinstance(x, Node)
    with node.graph.inserting_before(node):
        wide = node.graph.call_function(_ATEN._to_copy.default, (x,), {"dtype": kind})
    wide.meta = {**node.meta, "val": x.meta["val"].to(kind)}
    node.args = (wide, *node.args[1:])


def first_line(error: BaseException) -> str:
    """The kind of an error, and the first line that says something."""
    plain = _COLOUR.sub("", str(error))
    lines = [line for line in plain.splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:_MOST_LETTERS] if lines else ''}"


def _reason(error: BaseException) -> str:
    """The operator that has no translation, or the exporter's own summary of what failed, with the
    node, without its advice."""
    plain = _COLOUR.sub("", str(error))
    if missing := _MISSING.search(plain):
        return f"the exporter has no ONNX for the operator {missing[1]}"
    _, found, summary = plain.partition(_SUMMARY)
    if not found:
        return first_line(error)
    told, _, rest = summary.partition(_EXECUTING)
    node = rest.partition("\n")[0].strip()
    place = f"{told} at {node}" if node else told
    return " ".join(place.split())[:_MOST_LETTERS]
