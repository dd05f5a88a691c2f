"""Checks that the header of a GGUF file stays within the file, before a package reads it.

A count that is larger than the file would keep a reader busy for years. Layout, little endian: the
magic, version u32, number of tensors u64 and of settings u64; settings of key, type u32 and value;
tensors of name, number of axes u32, axes u64, type u32 and offset u64. Texts are a length u64 and
bytes, lists a type u32, a length u64 and values (https://github.com/ggml-org/ggml, docs/gguf.md).
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path

from optc.errors import InputError
from optc.system.foreign.file import open_file

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
#: Bytes of a value by its type.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_TEXT, _LIST = 8, 9
_MOST_AXES = 4
_MOST_ELEMENTS = 1 << 45
#: Lists in lists.
_DEEPEST = 3
_SHORTEST_TEXT = 8


def check_structure(file: Path) -> None:
    """Check every length in the header of ``file``.

    Raises:
        InputError: One leads out of the file, or it is no GGUF file of version 2 or 3.
    """
    try:
        with open_file(file) as stream:
            if not file.stat().st_size:
                raise _refusal(file, "it is empty")
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                _Header(file, content).check()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(file)) from error


class _Header:
    """A position in the file that never leaves it."""

    def __init__(self, file: Path, content: mmap.mmap) -> None:
        self._file, self._content, self._at = file, content, 0

    def check(self) -> None:
        magic = self._content[:4]
        self._skip(4)
        version = self._number("<I")
        if magic != _MAGIC or version not in _VERSIONS:
            raise _refusal(self._file, f"it begins with {magic!r} and version {version}")
        tensors, settings = self._number("<Q"), self._number("<Q")
        for _ in range(settings):
            self._text()
            self._value(self._number("<I"), 0)
        for _ in range(tensors):
            self._text()
            axes = self._number("<I")
            if axes > _MOST_AXES:
                raise _refusal(self._file, f"a tensor of {axes} axes")
            if math.prod(self._number("<Q") for _ in range(axes)) > _MOST_ELEMENTS:
                raise _refusal(self._file, "a tensor that no machine holds")
            self._skip(12)

    def _value(self, kind: int, depth: int) -> None:
        if kind == _TEXT:
            self._text()
        elif kind == _LIST and depth < _DEEPEST:
            inner, count = self._number("<I"), self._number("<Q")
            if inner in _SIZES:
                self._skip(count * _SIZES[inner])
                return
            # each takes some bytes: a count that the file cannot hold ends at its end
            self._within(count * _SHORTEST_TEXT)
            for _ in range(count):
                self._value(inner, depth + 1)
        elif kind in _SIZES:
            self._skip(_SIZES[kind])
        else:
            raise _refusal(self._file, f"a setting of type {kind}")

    def _text(self) -> None:
        self._skip(self._number("<Q"))

    def _number(self, form: str) -> int:
        size = struct.calcsize(form)
        self._within(size)
        (value,) = struct.unpack_from(form, self._content, self._at)
        self._at += size
        return int(value)

    def _skip(self, count: int) -> None:
        self._within(count)
        self._at += count

    def _within(self, count: int) -> None:
        if self._at + count > len(self._content):
            raise _refusal(self._file, f"at byte {self._at} it needs {count} more than it has")


def _refusal(file: Path, problem: str) -> InputError:
    return InputError(
        f"not a GGUF file that can be read: {problem}",
        where=str(file),
        hint="download it again; files of version 1 must be converted",
    )
