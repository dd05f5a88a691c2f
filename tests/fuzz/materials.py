"""Undamaged inputs: a tiny model and an artifact of it, made where none are given."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable
from pathlib import Path

from tests.fuzz.form import Materials
from tests.fuzz.formats import FORMATS


def materials_for(
    formats: Iterable[str], folder: Path, *, artifact: Path | None, whole: bool
) -> Materials:
    """What the formats need, made in ``folder`` where it is not given.

    A child makes it: torch and the compilers start threads, and workers are forks of this process.
    """
    needed = {need for name in formats for need in FORMATS[name].needs}
    if whole:
        needed |= {"model", "artifact"}
    model, compiled = folder / "model", artifact or folder / "artifact"
    if "artifact" in needed and artifact is None:
        _in_child(_compile, model, compiled)
    elif "model" in needed:
        _in_child(_write_model, model)
    return Materials(model, compiled)


def _in_child(make: object, *paths: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(target=make, args=paths)  # type: ignore[arg-type]
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError(f"{getattr(make, '__name__', make)} failed")


def _write_model(folder: Path) -> None:
    from tests.support.stub import write_tiny_model

    folder.mkdir()
    write_tiny_model(folder)


def _compile(model: Path, artifact: Path) -> None:
    import optc

    _write_model(model)
    optc.compile(model, "int8-fused", artifact, backend=("tvm", "onnxruntime"), no_gates=True)
