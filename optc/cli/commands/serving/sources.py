"""Models and adapters of ``optc serve``, by the names that requests use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from optc.errors import InputError

if TYPE_CHECKING:
    from optc.runtime.engine import Engine
    from optc.runtime.tensors.engine import TensorEngine
    from optc.serve.models import AdapterSource, ModelSource

#: Gives the engine of an artifact, and of adapters by name.
Load = Callable[[Path, Mapping[str, Path]], "Engine | TensorEngine"]


def sources_of(
    artifacts: Sequence[Path],
    names: Sequence[str],
    adapters: Sequence[str],
    load: Load,
) -> list[ModelSource]:
    """The artifacts to load, by the names that requests use.

    Args:
        artifacts: Their folders.
        names: What requests call them; none are those of the folders.
        adapters: ``[MODEL:]NAME=FOLDER`` each.
        load: Loads one.

    Raises:
        InputError: There are more or fewer names than artifacts, or an adapter is of no model.
    """
    from optc.serve.models import ModelSource

    if names and len(names) != len(artifacts):
        raise InputError(
            f"{len(names)} names for {len(artifacts)} artifacts",
            where="--model-name",
            hint="give one for each, in their order",
        )
    called = list(names) or [path.resolve().name for path in artifacts]
    found: dict[str, list[AdapterSource]] = {name: [] for name in called}
    for text in adapters:
        model, source = _adapter(text, called)
        found[model].append(source)
    return [
        ModelSource(
            name,
            partial(load, path, {one.name: one.folder for one in found[name]}),
            tuple(found[name]),
        )
        for name, path in zip(called, artifacts, strict=True)
    ]


def _adapter(text: str, models: Sequence[str]) -> tuple[str, AdapterSource]:
    from optc.serve.models import AdapterSource

    head, separator, folder = text.partition("=")
    model, colon, name = head.rpartition(":")
    if not colon and len(models) == 1:
        model = models[0]
    if not (separator and name and folder) or model not in models:
        raise InputError(
            f"{text!r} is no adapter of a model",
            where="--adapter",
            hint=f"NAME=FOLDER, of several models MODEL:NAME=FOLDER; models: {', '.join(models)}",
        )
    return model, AdapterSource(name, Path(folder))
