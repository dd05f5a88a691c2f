"""Results of a program that are outputs of its graph: their names, types and shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.tensor_adapters import from_torch_dtype
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, OutputKind
from torch.utils import _pytree as pytree

from optc.errors import UnsupportedError


@contextmanager
def left_outputs(
    program: ExportedProgram, name: str
) -> Iterator[tuple[list[int], tuple[str, ...]]]:
    """A program without the results that are no tensors, and the same in every call; within the
    ``with`` block alone, as the program is the caller's.

    Yields:
        Which of the results are outputs, and warnings about those that are not, but None.

    Raises:
        UnsupportedError: A result has complex numbers.
    """
    specs = program.graph_signature.output_specs
    users = [place for place, one in enumerate(specs) if one.kind is OutputKind.USER_OUTPUT]
    node = program.graph.output_node()
    before, results = node.args, list(node.args[0])
    kept: list[int] = []
    constants: list[tuple[ConstantArgument, Any]] = []
    warnings = []
    for index, place in enumerate(users):
        argument = specs[place].arg
        if not isinstance(argument, ConstantArgument):
            kept.append(index)
            _refuse_complex(results[place], index, name)
        elif argument.value is not None:
            warnings.append(
                f"result {index} of forward is {argument.value!r} in every call: it is no output"
            )
            constants.append((argument, argument.value))
            results[place] = None
    try:
        for argument, _ in constants:
            argument.value = None  # the exporter takes no other constant
        node.args = (tuple(results),)
        yield kept, tuple(warnings)
    finally:
        node.args = before
        for argument, value in constants:
            argument.value = value


def _refuse_complex(result: Any, index: int, name: str) -> None:
    value = result.meta.get("val") if isinstance(result, torch.fx.Node) else None
    if isinstance(value, torch.Tensor) and value.is_complex():
        raise UnsupportedError(
            f"result {index} of forward has complex numbers, which engines do not give",
            where=name,
            hint="return torch.view_as_real of it",
        )


def state_outputs(model: ir.Model, program: ExportedProgram, kept: Sequence[int]) -> None:
    """State types and shapes of outputs that the translation leaves open, as PyTorch knows them."""
    specs = program.graph_signature.output_specs
    users = [place for place, one in enumerate(specs) if one.kind is OutputKind.USER_OUTPUT]
    results: Any = program.graph.output_node().args[0]
    if len(kept) != len(model.graph.outputs):
        return
    for value, index in zip(model.graph.outputs, kept, strict=True):
        known = results[users[index]].meta.get("val")
        if not isinstance(known, torch.Tensor):
            continue
        if value.shape is None:
            value.shape = ir.Shape([d if isinstance(d, int) else str(d) for d in known.shape])
        kind = from_torch_dtype(known.dtype)
        if value.dtype is None:
            value.dtype = kind
        elif value.dtype != kind:
            _convert(model, value, kind)


def _convert(model: ir.Model, value: ir.Value, kind: ir.DataType) -> None:
    """Give a result its own type: of a sum of float16, which is computed in float32, the exporter
    converts what others read, and not the output."""
    node = ir.node("Cast", [value], {"to": int(kind)})
    (result,) = node.outputs
    result.shape, result.dtype = value.shape, kind
    model.graph.append(node)
    model.graph.outputs[model.graph.outputs.index(value)] = result


def name_outputs(model: ir.Model, program: ExportedProgram, kept: Sequence[int]) -> None:
    """Call outputs by the keys of the results, ``output`` where there is one without a key; where
    two would have one name, the later gets a number."""
    spec = program.call_spec.out_spec
    if spec is None or len(kept) != len(model.graph.outputs):
        return
    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    paths = {index: path for path, index in pytree.tree_flatten_with_path(tree)[0]}
    taken = {str(value.name) for value in model.graph.inputs}
    for value, index in zip(model.graph.outputs, kept, strict=True):
        keys = [str(getattr(key, "key", getattr(key, "idx", key))) for key in paths[index]]
        value.name = _free("_".join(keys), taken)
        taken.add(value.name)


def _free(text: str, taken: set[str]) -> str:
    name = text if text and not text[0].isdigit() else f"output_{text}" if text else "output"
    if name in taken:
        name = f"{name}_out"
    first, number = name, 2
    while name in taken:
        name, number = f"{first}_{number}", number + 1
    return name


def tensors_of(found: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Those of a result of transformers that are tensors, by their names."""
    return {name: one for name, one in found.items() if isinstance(one, torch.Tensor)}
