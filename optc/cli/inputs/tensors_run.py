"""``optc run --inputs``: outputs of a model of named tensors."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from optc.cli.output import print_json, visible
from optc.compiling.tensors.samples import read_arrays
from optc.errors import EngineError, InputError
from optc.runtime.tensors.classifier import Classifier
from optc.runtime.tensors.images import image_files, is_image
from optc.runtime.tensors.load import load_tensors
from optc.system.whole_file import whole_file

Array = npt.NDArray[Any]


def run_tensors(
    artifact: Path, inputs: Path, output: Path | None, engine: str | None, as_json: bool
) -> None:
    """Run one file of inputs, and write or describe the outputs.

    Args:
        artifact: Its folder.
        inputs: A ``.npz`` file.
        output: Where outputs go; None only describes them.
        engine: Name of the engine.
        as_json: Print one JSON object.

    Raises:
        InputError: A file cannot be read or written, or inputs are not what the model takes.
    """
    with load_tensors(artifact, engine=engine) as loaded:
        if isinstance(loaded, Classifier) and (inputs.is_dir() or is_image(inputs)):
            _classified(loaded, inputs, output, as_json)
            return
        arrays = read_arrays(inputs)
        started = time.perf_counter()
        try:
            outputs = loaded.run(arrays)
        except EngineError as error:  # such as an index beyond a table
            raise InputError(
                f"the model fails at these inputs: {error.message}",
                where=str(inputs),
                hint="give values and sizes that it takes",
            ) from error
        seconds = time.perf_counter() - started
        info = dict(loaded.info)
    if output is not None:
        _write(output, outputs)
    described = {name: _described(array) for name, array in outputs.items()}
    if as_json:
        print_json("run", {"outputs": described, "seconds": seconds, "engine": info}, [])
        return
    for name, one in described.items():
        click.echo(
            f"{name}: {one['dtype']} {one['shape']}, {one['least']:.6g} to {one['most']:.6g}"
        )


def _classified(loaded: Classifier, inputs: Path, output: Path | None, as_json: bool) -> None:
    """Classify an image, or those of a folder.

    Raises:
        InputError: ``output`` is given: classes are printed.
    """
    if output is not None:
        raise InputError(
            "keeps arrays, and images have classes", where="--output", hint="--json prints them"
        )
    files = image_files(inputs) if inputs.is_dir() else [inputs]
    started = time.perf_counter()
    found = loaded.classify(files)
    seconds = time.perf_counter() - started
    if as_json:
        rows = [
            {"image": str(file), "classes": [asdict(one) for one in classes]}
            for file, classes in zip(files, found, strict=True)
        ]
        print_json("run", {"images": rows, "seconds": seconds, "engine": dict(loaded.info)}, [])
        return
    for file, classes in zip(files, found, strict=True):
        told = ", ".join(f"{one.label} {one.score:.3f}" for one in classes)
        click.echo(f"{visible(str(file))}: {visible(told)}")


def _described(array: Array) -> dict[str, Any]:
    numbers = array.astype(np.float64)
    least, most = (float(f(numbers)) if array.size else 0.0 for f in (np.min, np.max))
    return {
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "least": least,
        "most": most,
    }


def _write(path: Path, outputs: dict[str, Array]) -> None:
    try:
        with whole_file(path) as beside, beside.open("wb") as file:
            np.savez(file, **outputs)  # type: ignore[arg-type]  # its stub knows no such keywords
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror or error}", where=str(path)
        ) from error
