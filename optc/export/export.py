"""An artifact as a checkpoint that other tools read: all of it, or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from optc.artifact import Artifact
from optc.errors import InputError
from optc.export.choose import choose_weights
from optc.export.parameters import Weight, read_parameters
from optc.export.source_class import SourceClass, read_class
from optc.export.written import Written

Format = Literal["gguf", "compressed-tensors"]


def export_artifact(
    artifact: Artifact, form: Format, output: Path, engine: str | None = None
) -> Written:
    """Write the weights of an engine, with config and tokenizer.

    Args:
        artifact: Whose files have been checked.
        form: The format.
        output: A file for ``gguf``, a folder for ``compressed-tensors``; it must not be there.
        engine: Name of the engine; None is the first that can give its weights.

    Raises:
        InputError: There is something at ``output``, it cannot be written, or there is no such
            engine.
        UnsupportedError: Something of the model has no equivalent, which is named.
        UnavailableError: A package is missing.
    """
    _check_output(output, form)
    chosen = choose_weights(artifact, engine)
    model = read_class(artifact.manifest.source, len(chosen.weights))
    weights = read_parameters(chosen.weights, model.skeleton)
    beside = output.with_name(f".{output.name}.partial-{os.getpid()}")
    try:
        written = _writer(form)(beside, artifact, model, weights)
        os.replace(beside, output)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror or error}",
            where=str(output),
            hint="nothing was left behind; free space, or give another --output",
        ) from error
    finally:
        _remove(beside)
    return written


def _check_output(output: Path, form: Format) -> None:
    if form == "gguf" and output.suffix != ".gguf":
        raise InputError(
            f"{output.name!r} does not end in .gguf", where="--output", hint="name it so"
        )
    if os.path.lexists(output):
        raise InputError(
            f"{output} is there already", where="--output", hint="remove it, or give another name"
        )
    if not output.parent.is_dir():
        raise InputError(
            f"there is no folder {output.parent}", where="--output", hint="make it first"
        )


def _writer(form: Format) -> Callable[[Path, Artifact, SourceClass, dict[str, Weight]], Written]:
    if form == "gguf":
        from optc.export.gguf.file import write_gguf

        return write_gguf
    return _write_folder


def _write_folder(
    folder: Path, artifact: Artifact, model: SourceClass, weights: dict[str, Weight]
) -> Written:
    from optc.export.compressed import write_compressed

    folder.mkdir()
    return write_compressed(folder, artifact, model, weights)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
