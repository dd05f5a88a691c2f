"""Reads a library of macOS as far as its loader does: load commands, symbols, bindings, signature.

After Apple's headers ``mach-o/loader.h``, ``nlist.h`` and the kernel's ``cs_blobs.h``.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC, ARM64, DYLIB = 0xFEEDFACF, 0x0100000C, 6
TWO_LEVELS = 0x80
PLATFORM_MACOS = 1
#: A segment that is read-only once the loader has bound it.
READ_ONLY = 0x10
_SEGMENT, _SYMBOLS, _LOAD, _ID, _UUID = 0x19, 0x02, 0x0C, 0x0D, 0x1B
_SIGNATURE, _RPATH, _BINDINGS, _VERSION = 0x1D, 0x8000001C, 0x80000022, 0x32
#: Of a symbol: the mask of its type, one that is defined in a section, an exported one.
_TYPE, _IN_SECTION, _EXTERNAL = 0x0E, 0x0E, 0x01
#: Blobs of a signature, and of its directory: made without a certificate, hashed by SHA-256.
_EMBEDDED, _DIRECTORY, AD_HOC, _SHA256 = 0xFADE0CC0, 0xFADE0C02, 0x2, 2


def _number(code: bytes, at: int) -> tuple[int, int]:
    """A number of any length (LEB128), and the place behind it; modulo 2^64, as addresses are."""
    value, shift = 0, 0
    while True:
        value |= (code[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if code[at - 1] < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at


@dataclass(frozen=True)
class Segment:
    """A part of the file that is mapped as a whole."""

    name: str
    offset: int
    size: int
    address: int
    room: int
    protection: int
    flags: int


@dataclass(frozen=True)
class Bound:
    """A symbol that the loader looks up, the library that it is taken from, and the address where
    it goes; ``weak`` ones are looked up in all."""

    symbol: str
    library: str
    address: int
    weak: bool = False


@dataclass(frozen=True)
class Signature:
    """What a directory of a signature says, and digests of the pages that it covers."""

    identifier: str
    flags: int
    covered: int
    page_bytes: int
    stated: tuple[bytes, ...]
    found: tuple[bytes, ...]


class MachO:
    """A file of 64 bits, little-endian."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        fields = struct.unpack_from("<8I", self.data)
        self.magic, self.processor, _, self.kind, self._count, _, self.flags, _ = fields
        self._commands = list(self._walk())
        self.segments = [self._segment(at) for at in self._of(_SEGMENT)]

    def _walk(self) -> Iterator[tuple[int, int]]:
        """Command and place of all load commands."""
        at = 32
        for _ in range(self._count):
            command, size = struct.unpack_from("<2I", self.data, at)
            yield command, at
            at += size

    def _of(self, command: int) -> list[int]:
        return [at for found, at in self._commands if found == command]

    def _text(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()

    def _name(self, at: int) -> str:
        """The text that a load command gives by its offset."""
        return self._text(at + struct.unpack_from("<I", self.data, at + 8)[0])

    def _segment(self, at: int) -> Segment:
        name, address, room, offset, size, _, protection, _, flags = struct.unpack_from(
            "<16s4Q4I", self.data, at + 8
        )
        return Segment(name.rstrip(b"\0").decode(), offset, size, address, room, protection, flags)

    def section(self, name: str) -> bytes:
        """The bytes of the section ``name`` of the code's segment."""
        at = self._of(_SEGMENT)[0]
        (count,) = struct.unpack_from("<I", self.data, at + 64)
        for place in range(at + 72, at + 72 + 80 * count, 80):
            found, _, _, size, offset = struct.unpack_from("<16s16s2QI", self.data, place)
            if found.rstrip(b"\0").decode() == name:
                return self.data[offset : offset + size]
        raise KeyError(name)

    @property
    def install_name(self) -> str:
        """The name that others link it by."""
        (at,) = self._of(_ID)
        return self._name(at)

    @property
    def libraries(self) -> list[str]:
        """Install names of the libraries that it needs."""
        return [self._name(at) for at in self._of(_LOAD)]

    @property
    def search_paths(self) -> list[str]:
        """Folders that ``@rpath`` stands for."""
        return [self._name(at) for at in self._of(_RPATH)]

    @property
    def version(self) -> tuple[int, str]:
        """Its platform, and the least release of it."""
        (at,) = self._of(_VERSION)
        platform, least = struct.unpack_from("<2I", self.data, at + 8)
        return platform, f"{least >> 16}.{least >> 8 & 0xFF}"

    @property
    def has_uuid(self) -> bool:
        """Whether it has an identity of its own."""
        return bool(self._of(_UUID))

    @property
    def exports(self) -> dict[str, int]:
        """Addresses of symbols that others see, as C spells them."""
        (at,) = self._of(_SYMBOLS)
        table, count, texts, _ = struct.unpack_from("<4I", self.data, at + 8)
        found = {}
        for place in range(table, table + 16 * count, 16):
            name, kind, _, _, address = struct.unpack_from("<I2BHQ", self.data, place)
            if kind & _TYPE == _IN_SECTION and kind & _EXTERNAL:
                found[self._text(texts + name).removeprefix("_")] = address
        return found

    @property
    def bindings(self) -> list[Bound]:
        """All that the loader looks up."""
        return [
            bound
            for kind in (1, 2, 3)  # at once, weak, lazily
            for bound in self._bound(self._loader_code(kind), weak=kind == 2)
        ]

    @property
    def pointers(self) -> list[int]:
        """Addresses of all that points into the library itself, which lies elsewhere each time."""
        code, found = self._loader_code(0), []
        at, place = 0, 0
        while at < len(code):
            operation, value = code[at] & 0xF0, code[at] & 0x0F
            at += 1
            times, skip = 0, 0
            if operation == 0x20:
                offset, at = _number(code, at)
                place = self.segments[value].address + offset
            elif operation == 0x30:
                skip, at = _number(code, at)
            elif operation == 0x40:
                skip = 8 * value
            elif operation == 0x50:
                times = value
            elif operation in (0x60, 0x80):
                times, at = _number(code, at)
            elif operation == 0x70:
                times = 1
            if operation in (0x70, 0x80):
                skip, at = _number(code, at)
            for _ in range(times):
                found.append(place)
                place += 8 + skip
            place += 0 if times else skip
        return found

    def _loader_code(self, kind: int) -> bytes:
        (at,) = self._of(_BINDINGS)
        start, size = struct.unpack_from("<2I", self.data, at + 8 + 8 * kind)
        return self.data[start : start + size]

    def _bound(self, code: bytes, *, weak: bool) -> Iterator[Bound]:
        """Runs the loader's byte code."""
        at, library, symbol, place = 0, 0, "", 0
        while at < len(code):
            operation, value = code[at] & 0xF0, code[at] & 0x0F
            at += 1
            number, times = 0, 1
            if operation == 0x10:
                library = value
            elif operation == 0x40:
                end = code.index(b"\0", at)
                symbol, at = code[at:end].decode(), end + 1
            elif operation in (0x60, 0x70, 0x80, 0xA0, 0xC0):
                times, at = _number(code, at) if operation == 0xC0 else (1, at)
                number, at = _number(code, at)
            elif operation == 0xB0:
                number = 8 * value
            else:
                assert operation in (0x00, 0x50, 0x90), hex(operation)
            if operation == 0x70:
                place = self.segments[value].address + number
            elif operation == 0x80:
                place += number
            elif operation in (0x90, 0xA0, 0xB0, 0xC0):
                for _ in range(times):
                    yield Bound(symbol, "" if weak else self.libraries[library - 1], place, weak)
                    place += 8 + number

    @property
    def signature(self) -> Signature:
        """Its signature, whose numbers are big-endian."""
        (at,) = self._of(_SIGNATURE)
        offset, size = struct.unpack_from("<2I", self.data, at + 8)
        assert offset + size == len(self.data), "it ends the file"
        magic, _, count = struct.unpack_from(">3I", self.data, offset)
        assert magic == _EMBEDDED
        blobs = dict(
            struct.unpack_from(">2I", self.data, offset + 12 + 8 * i) for i in range(count)
        )
        start = offset + blobs[0]
        words = struct.unpack_from(">9I4B", self.data, start)
        magic, _, _, flags, hashes, identifier, _, slots, covered, length, kind, _, shift = words
        assert (magic, length, kind) == (_DIRECTORY, 32, _SHA256)
        stated = (start + hashes + 32 * i for i in range(slots))
        pages = range(0, covered, 1 << shift)
        return Signature(
            self._text(start + identifier),
            flags,
            covered,
            1 << shift,
            tuple(self.data[place : place + 32] for place in stated),
            tuple(
                hashlib.sha256(self.data[page : min(page + (1 << shift), covered)]).digest()
                for page in pages
            ),
        )

    @property
    def signed_at(self) -> int:
        """Where the signature begins."""
        (at,) = self._of(_SIGNATURE)
        return int(struct.unpack_from("<I", self.data, at + 8)[0])
