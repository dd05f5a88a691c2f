"""The reading of a model's images, as stated by a folder's processor or a file of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from optc.artifact.tasks.classification import CLASSIFICATION
from optc.errors import InputError, UnsupportedError
from optc.importer.tensors.imported import ImportedTensors
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.runtime.tensors.images import ImageInput, parse_images
from optc.runtime.tensors.pictures import pillow
from optc.system.foreign.file import read_file

_PROCESSOR = "preprocessor_config.json"
#: Most that a value of an image may differ by.
_NEAR = 1e-4
_PLAIN = "{} {}: the artifact takes pixel_values as arrays, and no images"
_CLASSIFIER, _COLOURS = "ForImageClassification", 3
#: The largest file that is read.
_MOST_BYTES = 1 << 20


def as_classifier(found: ImportedTensors, images: ImageInput) -> ImportedTensors:
    """The model with its images, for the task of classification.

    Raises:
        InputError: It has other inputs than images, or its first output is no row of scores for
            each image.
    """
    one = next((spec for spec in found.interface.inputs if spec.name == images.input), None)
    scores = found.interface.outputs[0]
    if len(found.interface.inputs) != 1 or one is None or len(one.dims) != 4:
        raise InputError(
            "images are the one input of a classifier, of four axes",
            where=found.name,
            hint=f"its inputs are {_shown(found.interface)}",
        )
    if len(scores.dims) != 2 or not scores.dtype.startswith("float"):
        raise InputError(
            f"its first output {scores.name!r} is {scores.dtype}{list(scores.dims)}, and no scores "
            "[images, classes]",
            where=found.name,
            hint="leave the images out, and give arrays by --inputs FILE.npz",
        )
    return found.with_images(CLASSIFICATION, images)


def read_images(given: str | Path | Mapping[str, Any], interface: TensorsInterface) -> ImageInput:
    """The images that a file (JSON or YAML) or its object states; ``labels`` may name a file beside
    it, with a class on each line.

    Raises:
        InputError: It cannot be read, or says something else.
        UnsupportedError: It asks for a step that is not known.
    """
    if isinstance(given, Mapping):
        values, where, folder = dict(given), "images", Path()
    else:
        values, where, folder = _object(Path(given)), str(given), Path(given).parent
    if isinstance(labels := values.get("labels"), str):
        values["labels"] = tuple(_text(folder / labels).splitlines())
    return parse_images(values, interface.inputs[0].name, where)


def images_of_folder(folder: Path, config: Mapping[str, Any]) -> tuple[ImageInput | None, str]:
    """The images of a classifier, as the processor of its transformers' folder reads them.

    Returns:
        None where the model is no classifier, the folder has no processor, or it does what is not
        known; then with the reason, for a warning. The processor is asked: an image of noise
        becomes the same by both, to 1e-4.

    Raises:
        InputError: transformers does not read the processor.
        UnavailableError: Pillow is missing.
    """
    names = config.get("architectures") or [""]
    if not str(names[0]).endswith(_CLASSIFIER):
        return None, ""
    if not (folder / _PROCESSOR).is_file():
        return None, _PLAIN.format(f"without {_PROCESSOR}", "nobody knows how images are read")
    if (channels := config.get("num_channels", _COLOURS)) != _COLOURS:
        return None, _PLAIN.format("its images have", f"{channels} channels")
    from transformers import AutoImageProcessor

    pillow()  # or transformers says less clearly that it is missing

    where = str(folder / _PROCESSOR)
    try:
        made = AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True)
    except Exception as error:  # transformers raises what its classes raise
        text = " ".join(str(error).split())[:300]
        raise InputError(f"transformers does not read it: {text}", where=where) from error
    values = {key: value for key, value in made.to_dict().items() if value is not None}
    values["labels"] = labels_of(config)
    try:
        images = parse_images(values, "pixel_values", where)
    except (InputError, UnsupportedError) as error:
        return None, _PLAIN.format(type(made).__name__, error.message)
    if not _does_the_same(made, images):
        return None, _PLAIN.format(type(made).__name__, "does more with images than its file says")
    return images, ""


def _does_the_same(made: Any, images: ImageInput) -> bool:
    image = np.random.default_rng(0).integers(0, 256, (301, 407, 3), np.uint8)
    wanted = np.asarray(made(images=image, return_tensors="np")["pixel_values"][0])
    (found,) = images.batch([image])
    return found.shape == wanted.shape and bool(np.abs(found - wanted).max() < _NEAR)


def labels_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of a folder's classes, in order; empty where config.json does not number them all."""
    named = config.get("id2label")
    if not isinstance(named, Mapping):
        return ()
    try:
        numbers = {int(key): str(value) for key, value in named.items()}
    except ValueError:
        return ()
    complete = sorted(numbers) == list(range(len(numbers)))
    return tuple(numbers[i] for i in range(len(numbers))) if complete else ()


def _object(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        raise InputError(f"is neither JSON nor YAML: {error}", where=str(path)) from error
    if not isinstance(found, dict):
        raise InputError("is no object of keys", where=str(path), hint="such as size: 224")
    return found


def _text(path: Path) -> str:
    try:
        return read_file(path, _MOST_BYTES).decode()
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error


def _shown(interface: TensorsInterface) -> str:
    return ", ".join(f"{one.name} {list(one.dims)}" for one in interface.inputs)
