"""``optc run --output picture.png``: images of prompts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Unpack

import click

from optc.cli.output import print_json
from optc.errors import InputError, UnavailableError
from optc.runtime.diffusion.generator import DrawingChanges, Pixels
from optc.runtime.diffusion.load import load_image_generator
from optc.system.whole_file import whole_file


def run_images(
    artifact: Path,
    prompts: list[str],
    output: Path,
    engine: str | None,
    as_json: bool,
    **drawing: Unpack[DrawingChanges],
) -> None:
    """Make an image of each prompt, or one where the model takes none.

    Args:
        artifact: Its folder.
        prompts: What to draw.
        output: File of an image; of several, ``-1``, ``-2`` … stand behind its name.
        engine: Name of the engine.
        as_json: Print one JSON object.
        **drawing: Fields of `Drawing`.

    Raises:
        InputError: A file cannot be written.
        UnavailableError: Pillow is not installed.
    """
    _writer()
    with load_image_generator(artifact, engine=engine) as loaded:
        started = time.perf_counter()
        images = loaded.generate(prompts or 1, **drawing)
        seconds = time.perf_counter() - started
        info: dict[str, Any] = dict(loaded.info)
    files = [output]
    if len(images) > 1:
        names = [f"{output.stem}-{at}{output.suffix}" for at in range(1, len(images) + 1)]
        files = [output.with_name(name) for name in names]
    for file, image in zip(files, images, strict=True):
        _write(file, image)
    if as_json:
        values = {"images": [str(file) for file in files], "seconds": seconds, "engine": info}
        print_json("run", values, [])
        return
    for file in files:
        click.echo(str(file))


def _writer() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise UnavailableError(
            "images are written by Pillow, which is not installed",
            where="--output",
            hint="pip install 'optc[images]'",
        ) from error
    return Image


def _write(file: Path, image: Pixels) -> None:
    pillow = _writer()
    try:
        form = pillow.registered_extensions().get(file.suffix.lower())
        if form is None:
            raise ValueError(f"no format of images ends in {file.suffix!r}")
        with whole_file(file) as beside:
            pillow.fromarray(image).save(beside, format=form)
    except (OSError, ValueError) as error:  # ValueError: no format has this ending
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot be written: {reason}", where=str(file), hint="such as picture.png"
        ) from error
