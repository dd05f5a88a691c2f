"""Files in the place of a model's files: pointers, pages, links to what is not there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from optc.errors import InputError
from optc.system.foreign.file import open_file
from optc.system.sources.kind import matching

#: Files that an import reads, beside weights.
_READ = ("config.json", "*.index.json", "tokenizer.json", "tokenizer.model")
#: Names of weights; those of the first kind that is there are read.
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin", "*.safetensors", "*.gguf")
_HEAD = 128
#: What files begin with that stand for another one: what it is, and what to do.
_HEADS: tuple[tuple[bytes, str, str], ...] = (
    (
        b"version https://git-lfs",
        "a pointer of git-lfs, and not the file itself",
        "in the clone: git lfs pull; or download the model with hf download",
    ),
    (b"<!doctype html", "a web page", "download the file itself: hf download"),
    (b"<html", "a web page", "download the file itself: hf download"),
    (b"<?xml", "the answer of a server", "download the file itself"),
)


def check_stand_ins(folder: Path, names: Sequence[str]) -> None:
    """Check that the files of ``folder`` that an import reads are those files.

    Raises:
        InputError: One is a pointer, a page, or a link to nothing; or nothing is in it.
    """
    weights = next(filter(None, (matching(names, (one,)) for one in _WEIGHTS)), [])
    for name in (*matching(names, _READ), *weights):
        check_file(folder / name)


def check_file(file: Path) -> None:
    """As `check_stand_ins`, of one file. What cannot be read is left to who reads it."""
    try:
        if file.is_symlink() and not file.exists():
            raise InputError(
                "a link to what is not there", where=str(file), hint="download the model again"
            )
        if not file.is_file():
            return
        with open_file(file) as stream:
            head = stream.read(_HEAD).lstrip().lower()
    except OSError:
        return
    if not head:
        raise InputError("the file is empty", where=str(file), hint="download it again")
    for begin, what, hint in _HEADS:
        if head.startswith(begin):
            raise InputError(what, where=str(file), hint=hint)
