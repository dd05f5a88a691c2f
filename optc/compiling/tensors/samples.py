"""Inputs of a user to judge a model of named tensors by."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.runtime.tensors.images import ImageInput, image_files, is_image
from optc.runtime.tensors.inputs import checked_inputs

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
#: Array of images in a file, and images of a call.
IMAGES, _AT_ONCE = "images", 32


def read_samples(
    given: Sequence[Path | Tensors], interface: TensorsInterface, images: ImageInput | None = None
) -> tuple[Tensors, ...]:
    """The user's samples: files (``.npz``) or arrays by name; of a model of images also images,
    folders of them, or files with an array ``images`` u8[N, H, W, 3].

    Raises:
        InputError: A file is none, or arrays are not what the model takes.
    """
    found = []
    for index, one in enumerate(given):
        where = str(one) if isinstance(one, Path) else f"sample {index}"
        found += [checked_inputs(arrays, interface, where) for arrays in _arrays(one, images)]
    return tuple(found)


def _arrays(one: Path | Tensors, images: ImageInput | None) -> Iterator[Tensors]:
    if images is None:
        yield read_arrays(one) if isinstance(one, Path) else one
        return
    pictures: Sequence[Any] = ()
    if isinstance(one, Path) and (one.is_dir() or is_image(one)):
        pictures = image_files(one) if one.is_dir() else [one]
    else:
        arrays = read_arrays(one) if isinstance(one, Path) else one
        if IMAGES not in arrays:
            yield arrays
            return
        pictures = list(arrays[IMAGES])
    for start in range(0, len(pictures), _AT_ONCE):
        rows = images.batch(pictures[start : start + _AT_ONCE])
        if len({row.shape for row in rows}) > 1:
            yield from ({images.input: row[None]} for row in rows)
        else:
            yield {images.input: np.stack(rows)}


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a ``.npz`` file by name.

    Raises:
        InputError: It is none.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise InputError(
            f"is no file of arrays: {error}",
            where=str(path),
            hint="write it with numpy.savez(FILE, NAME=array, …)",
        ) from error
