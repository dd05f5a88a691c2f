"""The package's reader of GGUF files, over plain arrays."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, GGUFValueType

#: Longer lists are those of a tokenizer, which transformers reads by itself.
_LONGEST_LIST = 4096


class _OfPlainArrays(GGUFReader):
    """Reads a header in a quarter of the time: the package slices a `numpy.memmap` for each of the
    hundred thousand texts of a vocabulary, and every slice of one is made a `numpy.memmap` again.
    """

    @property
    def data(self) -> npt.NDArray[Any]:
        """The bytes of the file, mapped."""
        return self._plain

    @data.setter
    def data(self, mapped: npt.NDArray[Any]) -> None:
        self._plain = mapped.view(np.ndarray)


@contextmanager
def read_once() -> Iterator[None]:
    """Readers that transformers opens, for settings and again for the tokenizer, are one for each
    file, over plain arrays."""
    original = gguf.GGUFReader
    gguf.GGUFReader = cache(_OfPlainArrays)  # transformers imports it when it is called
    try:
        yield
    finally:
        gguf.GGUFReader = original


class PlainReader(_OfPlainArrays):
    """Reads a header in a tenth of the time and memory: all of it but the values of long lists,
    which are lists of nothing here."""

    def whole_list(self, name: str) -> list[Any] | None:
        """The values of a list, however long it is; None where ``name`` is another kind of value.

        Raises:
            UnicodeDecodeError: A text is not UTF-8.
        """
        field = self.fields[name]
        if field.types[:1] != [GGUFValueType.ARRAY] or field.types[1:2] == [GGUFValueType.ARRAY]:
            return None
        if field.data:
            contents: list[Any] = field.contents()
            return contents
        start = field.offset + 8 + len(name.encode()) + 4
        inner, count = struct.unpack_from("<IQ", self._plain.data, start)
        kind, start = GGUFValueType(inner), start + 12
        if kind == GGUFValueType.STRING:
            return self._texts(count, start)
        values = np.frombuffer(self._plain, self.gguf_scalar_to_np[kind], count, start)
        numbers: list[Any] = values.tolist()
        return numbers

    def _texts(self, count: int, at: int) -> list[str]:
        content, length = self._plain.data, struct.Struct("<Q").unpack_from
        found = []
        for _ in range(count):
            end = at + 8 + length(content, at)[0]
            found.append(str(content[at + 8 : end], "utf-8"))
            at = end
        return found

    def _get_field_parts(
        self, orig_offs: int, raw_type: int
    ) -> tuple[int, list[npt.NDArray[Any]], list[int], list[GGUFValueType]]:
        if raw_type == GGUFValueType.ARRAY:
            inner, count = struct.unpack_from("<IQ", self._plain.data, orig_offs)
            if count > _LONGEST_LIST and inner != GGUFValueType.ARRAY:
                kind = GGUFValueType(inner)
                size = 12 + self._list_bytes(kind, count, orig_offs + 12)
                length = [self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)]
                return size, length, [], [GGUFValueType.ARRAY, kind]
        found: tuple[int, list[npt.NDArray[Any]], list[int], list[GGUFValueType]] = (
            super()._get_field_parts(orig_offs, raw_type)
        )
        return found

    def _list_bytes(self, kind: GGUFValueType, count: int, start: int) -> int:
        if kind != GGUFValueType.STRING:
            return count * np.dtype(self.gguf_scalar_to_np[kind]).itemsize
        at, content, length = start, self._plain.data, struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + length(content, at)[0]
        return at - start
