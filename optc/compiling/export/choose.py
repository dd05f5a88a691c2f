"""Chooses the engine of an artifact that is exported, and says why others cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from optc import registry
from optc.artifact.artifact import Artifact
from optc.artifact.manifest import EngineEntry
from optc.errors import InputError, UnsupportedError
from optc.ir.engine_weights import EngineWeight, WeightsBackend

TARGET = "target"


@dataclass(frozen=True)
class Chosen:
    """An engine and its weights."""

    entry: EngineEntry
    weights: Mapping[str, EngineWeight]


def check_engine(artifact: Artifact, name: str | None) -> None:
    """Check by the manifest alone that an engine's weights can be exported; arguments as of
    `choose_weights`, which raises the same.
    """
    _giving(artifact, name)


def choose_weights(artifact: Artifact, name: str | None) -> Chosen:
    """The weights of the engine called ``name``, else of the first that can give them.

    Raises:
        InputError: There is no target engine of that name.
        UnsupportedError: Passes changed the model into another, or its weights lie in a form that
            only its engine reads, or its class is code of the model's folder.
        UnavailableError: The backend is not installed.
    """
    entry, backend = _giving(artifact, name)
    return Chosen(entry, backend.engine_weights(entry, artifact.files.of_engine(entry)))


def _giving(artifact: Artifact, name: str | None) -> tuple[EngineEntry, WeightsBackend]:
    """The engine, and its backend."""
    entries = [e for e in artifact.manifest.engines if e.role == TARGET]
    wanted = [e for e in entries if name in (None, e.name)]
    if not wanted:
        raise InputError(
            f"no target engine {name!r}",
            where=str(artifact.path),
            hint=f"it has {', '.join(e.name for e in entries)}",
        )
    if "auto_map" in artifact.manifest.source.config:
        raise UnsupportedError(
            "its class is code of the model's folder, which is not in the artifact",
            where=artifact.manifest.source.name,
        )
    for done in artifact.manifest.passes:
        if done.leaves_class:
            raise UnsupportedError(
                f"no checkpoint of the model's class: {done.leaves_class}",
                where=f"pass {done.name}",
                hint="compile the model again with a recipe without this pass",
            )
    for entry in wanted:
        backend = registry.backend(entry.backend)
        if isinstance(backend, WeightsBackend):
            return entry, backend
    raise UnsupportedError(
        f"engines of the backend {wanted[0].backend} do not give their weights back",
        where=f"engine {wanted[0].name}",
        hint="compile for tvm, whose engines give their weights back",
    )
