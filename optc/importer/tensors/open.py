"""Any source of a model of named tensors, by its kind."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.importer.tensors.imported import ImportedTensors
from optc.system.sources.tensor_source import ONNX, TensorSource, is_factory


def import_tensors(source: TensorSource) -> ImportedTensors:
    """Import a model of named tensors, with its images where the source says how they are read.

    Raises:
        InputError: The source is of no kind that is known, or cannot be read.
        UnsupportedError: Something in it cannot be captured.
    """
    found = _imported(source)
    if source.images is None:
        return found
    from optc.importer.tensors.images import as_classifier, read_images

    given = source.images if isinstance(source.images, Mapping) else Path(source.images)
    return as_classifier(found, read_images(given, found.interface))


def _imported(source: TensorSource) -> ImportedTensors:
    """Import a model of named tensors by its kind.

    Raises:
        InputError: The source is of no kind that is known, or cannot be read.
        UnsupportedError: Something in it cannot be captured.
    """
    model, name = source.model, source.name
    if isinstance(model, str | os.PathLike):
        text = os.fspath(model)
        model = _made_by(text) if is_factory(text) else _opened(Path(text))
    if isinstance(model, ImportedTensors):
        return model
    if isinstance(model, tuple):
        model, *example = model
        source = _with_example(source, example)
    found = _onnx(model, name, source)
    if found is None:
        found = _torch(model, name, source)
    if found is None:
        raise InputError(
            f"is no model: a {type(model).__module__}.{type(model).__qualname__}",
            where=name,
            hint="give a torch.nn.Module with args, an ExportedProgram, a .pt2 or .onnx file, a "
            "model of onnx or onnx_ir, or a folder of a decoder",
        )
    return found


def _opened(path: Path) -> Any:
    if path.is_dir():
        from optc.importer.tensors.encoder import import_encoder

        return import_encoder(path)
    if not path.is_file():
        raise InputError("there is no such file", where=str(path))
    if path.suffix == ONNX:
        return path
    from optc.importer.tensors.program import read_program

    return read_program(path)


def _made_by(text: str) -> Any:
    """The result of ``module:factory``; the working folder is searched, too."""
    module, _, factory = text.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), factory)()
    except Exception as error:  # the user's own code may raise anything
        raise InputError(
            f"{type(error).__name__}: {error}",
            where=text,
            hint="a function without arguments that gives a module, or (module, args), or "
            "(module, args, dynamic)",
        ) from error
    finally:
        sys.path.remove(os.getcwd())


def _with_example(source: TensorSource, example: Sequence[Any]) -> TensorSource:
    from dataclasses import replace

    args, dynamic = [*example, (), {}][:2] if len(example) < 2 else example[:2]
    if isinstance(args, Mapping):
        return replace(source, kwargs=args, dynamic=dynamic)
    return replace(source, args=args, dynamic=dynamic)


def _onnx(model: Any, name: str, source: TensorSource) -> ImportedTensors | None:
    import onnx
    import onnx_ir as ir

    from optc.importer.tensors.onnx_source import import_onnx

    if isinstance(model, Path | onnx.ModelProto | ir.Model):
        return import_onnx(model, name, source.dims)
    return None


def _torch(model: Any, name: str, source: TensorSource) -> ImportedTensors | None:
    import torch
    from torch.export import ExportedProgram

    from optc.importer.tensors.program import import_module, import_program

    if isinstance(model, torch.nn.Module):
        return import_module(model, name, source.args, source.kwargs, source.dynamic)
    return import_program(model, name) if isinstance(model, ExportedProgram) else None
