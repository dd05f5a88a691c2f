"""PyTorch modules and exported programs become ONNX graphs."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from optc.errors import InputError, UnsupportedError
from optc.importer.tensors.imported import ImportedTensors, Tensors, digest_of
from optc.importer.tensors.interface import describe
from optc.importer.tensors.modules.calling import (
    as_array,
    called,
    check_repeats,
    checked_example,
    evaluated,
    telling,
    unwrapped,
)
from optc.importer.tensors.modules.dimensions import Dynamic, axes_of, dynamic_shapes
from optc.importer.tensors.modules.outputs import left_outputs, name_outputs, state_outputs
from optc.importer.tensors.modules.recurrent import steps_untold
from optc.importer.tensors.signature import signature_hint, suggested, told
from optc.importer.tensors.translation import first_line, translated
from optc.importer.tensors.widened import free_inputs, widen
from optc.ir.exact_folding import fold_exactly
from optc.system.foreign.file import open_file
from optc.system.logs.quiet import quiet
from optc.system.sources.dim import MOST, Dim


def import_module(
    module: torch.nn.Module,
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic: Dynamic,
) -> ImportedTensors:
    """A module as a graph, its example as a sample, and itself as the reference.

    Args:
        module: Evaluated, not trained: it is put into that mode while it is exported.
        name: Of the model.
        args, kwargs: An example of forward's arguments.
        dynamic: By the name of an argument and the axis.

    Raises:
        InputError: There is no example, or it does not suit the module.
        UnsupportedError: PyTorch cannot capture the module.
    """
    if not args and not kwargs:
        raise InputError(
            "there is no example of the module's inputs", where=name, hint=signature_hint(module)
        )
    module = unwrapped(module)
    args, kwargs = checked_example(module, args, kwargs, name)
    shapes = dynamic_shapes(module, args, kwargs, dynamic)
    try:
        with quiet(), torch.no_grad(), evaluated(module), steps_untold():
            program = torch.export.export(
                module, tuple(args), dict(kwargs), dynamic_shapes=shapes, strict=False
            )
    except Exception as error:  # what a module's own code or the export raises
        raise UnsupportedError(
            f"PyTorch cannot export the module: {told(error) or first_line(error)}",
            where=name,
            hint=suggested(error) or signature_hint(module),
        ) from error
    return import_program(program, name, dynamic, (args, kwargs), module)


def read_program(path: Path) -> ExportedProgram:
    """The program in a ``.pt2`` file.

    Raises:
        InputError: It is none, or it has weights that only pickle reads, which can run any code.
    """
    try:
        with open_file(path):  # a regular file
            pass
        _refuse_pickles(path)
        return torch.export.load(path)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except Exception as error:  # torch and zipfile raise what they like at broken files
        raise InputError(
            f"is no exported program: {first_line(error)}",
            where=str(path),
            hint="write it with torch.export.save",
        ) from error


def import_program(
    program: ExportedProgram,
    name: str,
    dynamic: Dynamic | None = None,
    example: Any = None,
    module: torch.nn.Module | None = None,
) -> ImportedTensors:
    """An exported program as a graph; its example is a sample.

    Args:
        program: Its dynamic dimensions are called after the first input that has them, and the
            axis, as ``x_0``.
        name: Of the model.
        dynamic: Other names of them, by input and axis.
        example: Arguments and keywords; None are those that the program was exported with.
        module: The program's own, which is the reference; None is the program.

    Raises:
        UnsupportedError: An operator of it has no translation, an output is no tensor of numbers,
            or it answers its example differently when it is asked again.
    """
    example = example or program.example_inputs
    with left_outputs(program, name) as (kept, warnings):
        model = translated(program, name)
    free_inputs(model)
    fold_exactly(model)
    state_outputs(model, program, kept)
    wide = widen(model)
    dims = _name_dims(model, program, dynamic or {})
    name_outputs(model, program, kept)
    interface = describe(model, dims)
    names = [one.name for one in interface.inputs]
    wanted = [one.name for one in interface.outputs]
    samples = () if example is None else (_flat(names, example),)
    run = program.module() if module is None else called(module)

    def reference(inputs: Tensors) -> Tensors:
        tensors = [torch.tensor(inputs[key]) for key in names]  # copies: forward may write there
        call, keywords = pytree.tree_unflatten(
            _with_constants(tensors, example), pytree.tree_flatten(example)[1]
        )
        with telling(name):
            found = pytree.tree_leaves(run(*call, **keywords))
        arrays = [torch.as_tensor(found[index]).detach().numpy() for index in kept]
        return dict(zip(wanted, arrays, strict=True))

    if example is not None:
        check_repeats(run, example, dict(zip(kept, wanted, strict=True)), name)
    usable = example is not None and not wide  # PyTorch rounds to bfloat16 where the graph does not
    digest = digest_of(model)
    return ImportedTensors(
        model,
        interface,
        name,
        digest,
        samples,
        reference if usable else None,
        (*warnings, *wide),
    )


def _with_constants(tensors: Sequence[torch.Tensor], example: Any) -> list[Any]:
    """The leaves of ``example``, tensors in it replaced in order."""
    given = iter(tensors)
    leaves = pytree.tree_leaves(example)
    return [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def _flat(names: Sequence[str], example: Any) -> Tensors:
    leaves = [one for one in pytree.tree_leaves(example) if isinstance(one, torch.Tensor)]
    return {name: as_array(one) for name, one in zip(names, leaves, strict=True)}


def _name_dims(model: ir.Model, program: ExportedProgram, dynamic: Dynamic) -> list[Dim]:
    """Call dimensions as the user did, or after the first input that has them: the export calls
    them after its own symbols."""
    bounds = {str(symbol): one for symbol, one in program.range_constraints.items()}
    names: dict[str, str] = {}
    for value in model.graph.inputs:
        for axis, dim in enumerate(value.shape or ()):
            if not isinstance(dim, int):
                name = str(value.name)
                given = axes_of(name, dynamic).get(axis)
                own = f"{value.name}_{axis}" if given is None else given.name
                names.setdefault(str(dim.value), own)
    computed = (value for node in model.graph for value in node.outputs)
    for value in (*model.graph.inputs, *computed):
        if value.shape is not None:
            called = [d if isinstance(d, int) else names.get(str(d.value), d) for d in value.shape]
            value.shape = ir.Shape(called)
    return [
        Dim(own, max(0, int(bounds[symbol].lower)), int(min(bounds[symbol].upper, MOST)))
        for symbol, own in names.items()
        if symbol in bounds
    ]


def _refuse_pickles(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.endswith(("_weights_config.json", "_constants_config.json")):
                continue
            entries = json.loads(archive.read(name)).get("config", {})
            pickled = [key for key, entry in entries.items() if entry.get("use_pickle")]
            if pickled:
                raise InputError(
                    f"{pickled[0]!r} is pickled, and reading a pickle can run any code",
                    where=str(path),
                    hint="save a program whose weights are plain tensors",
                )
