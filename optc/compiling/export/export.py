"""An artifact as a checkpoint that other tools read: all of it, or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from optc.artifact.artifact import Artifact
from optc.compiling.export.choose import check_engine, choose_weights
from optc.compiling.export.pruned import layer_numbers, pruned_source, renumbered
from optc.compiling.export.written import Written
from optc.errors import InputError

if TYPE_CHECKING:
    from optc.compiling.export.parameters import Weight
    from optc.compiling.export.source_class import SourceClass

Format = Literal["gguf", "compressed-tensors", "hf"]
FORMATS: tuple[Format, ...] = ("gguf", "compressed-tensors", "hf")


def check_export(
    artifact: Artifact,
    form: Format,
    output: Path,
    engine: str | None = None,
    tokenizer_from: Path | None = None,
) -> None:
    """Check what can be checked before a package is loaded or a weight read; arguments as of
    `export_artifact`, which raises the same.
    """
    _check_output(output, form)
    check_engine(artifact, engine)
    if tokenizer_from is not None:
        if form != "gguf":
            raise InputError(
                "the tokenizer of a GGUF file goes into a GGUF file",
                where="--tokenizer-from",
                hint="--format gguf",
            )
        from optc.compiling.export.gguf.taken_over import check_file

        check_file(tokenizer_from, artifact)
    elif form == "gguf":
        from optc.compiling.export.gguf.tokenizer import check_tokenizer

        check_tokenizer(artifact)


def export_artifact(
    artifact: Artifact,
    form: Format,
    output: Path,
    engine: str | None = None,
    tokenizer_from: Path | None = None,
) -> Written:
    """Write the weights of an engine, with config and tokenizer.

    Args:
        artifact: Whose files have been checked.
        form: The format.
        output: A file for ``gguf``, else a folder; it must not be there.
        engine: Name of the engine; None is the first that can give its weights.
        tokenizer_from: For ``gguf``: a GGUF file of the same model, whose tokenizer is taken over.

    Raises:
        InputError: There is something at ``output``, it cannot be written, or there is no such
            engine.
        UnsupportedError: Something of the model has no equivalent, which is named.
        UnavailableError: A package is missing.
    """
    check_export(artifact, form, output, engine, tokenizer_from)
    from optc.compiling.export.parameters import read_parameters
    from optc.compiling.export.source_class import read_class

    chosen = choose_weights(artifact, engine)
    source = pruned_source(artifact, chosen.entry, chosen.weights)
    numbers = layer_numbers(chosen.weights)
    own = {renumbered(name, numbers): weight for name, weight in chosen.weights.items()}
    passes = [done.name for done in artifact.manifest.passes if done.moves_weights]
    model = read_class(source, own.keys(), passes)
    weights = read_parameters(own, model.origins, floats=form == "hf")
    beside = output.with_name(f".{output.name}.partial-{os.getpid()}")
    try:
        written = _writer(form, tokenizer_from)(beside, artifact, model, weights)
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


def _writer(
    form: Format, tokenizer_from: Path | None
) -> Callable[[Path, Artifact, SourceClass, dict[str, Weight]], Written]:
    if form == "gguf":
        from optc.compiling.export.gguf.file import write_gguf

        return partial(write_gguf, tokenizer_from=tokenizer_from)
    return partial(_write_folder, form)


def _write_folder(
    form: Format, folder: Path, artifact: Artifact, model: SourceClass, weights: dict[str, Weight]
) -> Written:
    from optc.compiling.export.compressed import write_compressed
    from optc.compiling.export.hugging_face import write_folder

    folder.mkdir()
    write = write_folder if form == "hf" else write_compressed
    return write(folder, artifact, model, weights)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
