"""Comparison of two artifacts whose engines are to be the same but for their weights.

Code is the same where the files of an engine are the same bytes, all but those in which its backend
keeps weights. Places and shapes of weights are in the manifest.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from optc import registry
from optc.artifact.manifest import EngineEntry, Manifest
from optc.backend import WeightsBackend
from optc.errors import InputError

_HINT = "compile both with one recipe, one target and one version; weights alone may differ"


def check_same_engine(old: Manifest, new: Manifest, name: str, where: str) -> None:
    """Check that two artifacts have the same engine of a name, but for weights.

    Args:
        old: Of the one.
        new: Of the other.
        name: Of the engine.
        where: Names the other in messages.

    Raises:
        InputError: They differ in more.
        UnavailableError: Its backend is not installed.
    """
    mine, others = _engine(old, name), _engine(new, name)
    if mine is None or others is None:
        raise InputError(f"has no engine {name!r}", where=where, hint=_HINT)
    for part in ("role", "backend", "target", "requires", "interface", "data", "folder", "files"):
        if getattr(mine, part) != getattr(others, part):
            problem = f"another engine: the {part!r} of {name!r} differs"
            raise InputError(problem, where=where, hint=_HINT)
    for path in _code(mine):
        if _digests(old)[path] != _digests(new)[path]:
            raise InputError(f"another engine: {path} differs", where=where, hint=_HINT)


def check_same_text(old: Manifest, new: Manifest, where: str) -> None:
    """Check that two artifacts read and write texts alike: by the same tokenizer, chat template and
    defaults of generation.

    Raises:
        InputError: They do not.
    """
    hint = "load it as another model"
    if old.generation != new.generation:
        raise InputError("the defaults of generation differ", where=where, hint=hint)
    if old.tokenizer != new.tokenizer:
        raise InputError("the conventions of the tokenizer differ", where=where, hint=hint)
    for path in old.tokenizer.files if old.tokenizer is not None else ():
        if _digests(old)[path] != _digests(new)[path]:
            raise InputError(f"{path} differs", where=where, hint=hint)


def weight_files(engine: EngineEntry) -> frozenset[str]:
    """Paths in the artifact of the files of an engine that hold nothing but weights.

    Raises:
        InputError: Its backend does not say so of any.
    """
    backend = registry.backend(engine.backend)
    if not isinstance(backend, WeightsBackend):
        problem = f"engines of {engine.backend!r} do not keep weights apart from code"
        raise InputError(problem, where=f"engine {engine.name!r}")
    return frozenset(
        posixpath.normpath(posixpath.join(engine.folder, name))
        for name in engine.files
        if posixpath.basename(name) in backend.weight_files
    )


def _code(engine: EngineEntry) -> list[str]:
    weights = weight_files(engine)
    paths = (posixpath.normpath(posixpath.join(engine.folder, name)) for name in engine.files)
    return [path for path in paths if path not in weights]


def _engine(manifest: Manifest, name: str) -> EngineEntry | None:
    return next((one for one in manifest.engines if one.name == name), None)


def _digests(manifest: Manifest) -> Mapping[str, str]:
    return {entry.path: entry.sha256 for entry in manifest.files}
