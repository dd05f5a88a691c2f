"""Models of named tensors as users name them, known before anything is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optc.system.sources.dim import Dim

ONNX, PROGRAM = ".onnx", ".pt2"


@dataclass(frozen=True)
class TensorSource:
    """A model of named tensors, as a user names it.

    Attributes:
        model: A module, an exported program, a model of onnx or onnx_ir, a file (``.onnx``,
            ``.pt2``), or ``module:factory`` whose factory gives one of these.
        args, kwargs: An example of a module's arguments.
        dynamic: Dimensions that differ from call to call, by argument and axis.
        dims: Bounds of dimensions by the names that they have in the model.
        images: How images become its input, for a classifier: the keys of a Hugging Face folder's
            ``preprocessor_config.json`` and more, or a file with these; None is no classifier.
    """

    model: Any
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic: Mapping[str, Mapping[int, Dim]] = field(default_factory=dict)
    dims: Sequence[Dim] = ()
    images: str | os.PathLike[str] | Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The model's name: that of the file, of the factory or of the class."""
        if isinstance(self.model, str | os.PathLike):
            text = os.fspath(self.model)
            if is_factory(text):
                return text.rpartition(":")[2]
            path = Path(text).resolve()
            return path.stem if path.suffix in (ONNX, PROGRAM) else path.name
        return type(self.model).__name__


def is_tensor_source(model: object) -> bool:
    """True for a model of named tensors by its kind: no folder and no name of a decoder."""
    if not isinstance(model, str | os.PathLike):
        return True
    text = os.fspath(model)
    return Path(text).suffix in (ONNX, PROGRAM) or is_factory(text)


def is_factory(text: str) -> bool:
    """True for a text ``package.module:factory``."""
    module, colon, name = text.partition(":")
    if os.path.lexists(text):
        return False
    dotted = all(part.isidentifier() for part in module.split("."))
    return bool(colon) and dotted and name.isidentifier()
