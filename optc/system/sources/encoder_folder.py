"""Folders of models that may encode texts or images, by the classes that config.json names."""

from __future__ import annotations

import re
from pathlib import Path

from optc.errors import InputError
from optc.system.foreign.file import read_file
from optc.system.safe_json import JSONError, parse_json

_CONFIG = "config.json"
MODULES, _POOLING = "modules.json", "Pooling"
#: Classes of transformers that take tensors and give tensors, and generate nothing.
_ENCODES = re.compile(
    r"\w+((?<!LMHead)Model(WithProjection)?|(Question|Context)Encoder|ForMaskedLM|ForPreTraining|"
    r"For(Sequence|Token|Image|Audio|AudioFrame|Video)Classification|ForQuestionAnswering|"
    r"For(MultipleChoice|NextSentencePrediction|CTC|XVector|DepthEstimation|ObjectDetection)|"
    r"For(Semantic|Instance|Universal)Segmentation|ForImageSuperResolution)"
)
#: The largest config.json that is read.
_MOST_BYTES = 1 << 20


def may_be_encoder(path: Path) -> bool:
    """True if a folder may have a model that encodes; False where that cannot be told."""
    if pools(path):
        return True  # sentence-transformers encodes by any class
    file = path / _CONFIG
    if not file.is_file():
        return False
    try:
        config = parse_json(read_file(file, _MOST_BYTES))
    except (OSError, JSONError, ValueError):
        return False
    names = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        return False
    return _ENCODES.fullmatch(names[0]) is not None


def pools(folder: Path) -> bool:
    """True for a folder of sentence-transformers that lists a pooling."""
    if not (folder / MODULES).is_file():
        return False
    try:
        return any(kind == _POOLING for kind, _ in listed_modules(folder))
    except InputError:
        return True  # the import says what is wrong


def listed_modules(folder: Path) -> list[tuple[str, Path]]:
    """The modules that a folder of sentence-transformers lists: their kinds and folders, that of
    the encoder first.

    Raises:
        InputError: The list cannot be read, is none of modules, or names one outside of the folder.
    """
    file = folder / MODULES
    try:
        found = parse_json(read_file(file, _MOST_BYTES))
    except (OSError, JSONError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", where=str(file)) from error
    modules = found if isinstance(found, list) else []
    if not modules or not all(
        isinstance(one, dict) and all(isinstance(one.get(key), str) for key in ("type", "path"))
        for one in modules
    ):
        raise InputError("is no list of modules, each with type and path", where=str(file))
    for one in modules:
        if not (folder / one["path"]).resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"names a module outside of the folder: {one['path']}", where=str(file)
            )
    return [(one["type"].rpartition(".")[2], folder / one["path"]) for one in modules]
