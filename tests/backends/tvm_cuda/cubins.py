"""What is in a cubin: its architecture and the instructions of each kernel."""

from __future__ import annotations

import struct
from collections import Counter

#: Opcodes (the low 12 bits of an instruction of 16 bytes) from sm_80 to sm_120.
IMMA, HMMA, LDGSTS = 0x237, 0x23C, 0xFAE
#: Of section .nv.info: an attribute with a size and values, the bytes of a function's frame.
_SIZED, _FRAME = 4, 0x11


def architecture(cubin: bytes) -> int:
    """Compute capability that the code is for."""
    abi, (flags,) = cubin[8], struct.unpack_from("<I", cubin, 48)
    return int(flags >> 8 & 0xFF if abi >= 8 else flags & 0xFF)


def opcodes(cubin: bytes) -> dict[str, Counter[int]]:
    """How often each opcode occurs, by kernel."""
    return {
        name.removeprefix(".text."): Counter(
            struct.unpack_from("<Q", code, at)[0] & 0xFFF for at in range(0, len(code), 16)
        )
        for name, code in _sections(cubin).items()
        if name.startswith(".text.")
    }


def frames(cubin: bytes) -> list[int]:
    """Bytes of local memory that a thread of each function takes: what registers could not hold."""
    info, found, at = _sections(cubin)[".nv.info"], [], 0
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if (form, attribute) == (_SIZED, _FRAME):
            found.append(struct.unpack_from("<II", info, at + 4)[1])
        at += 4 + (size if form == _SIZED else 0)
    return found


def _sections(elf: bytes) -> dict[str, bytes]:
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    # name, type, flags, address, offset, size
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    strings = headers[names][4]

    def name_of(header: tuple[int, ...]) -> str:
        start = strings + header[0]
        return elf[start : elf.index(b"\0", start)].decode()

    return {name_of(h): elf[h[4] : h[4] + h[5]] for h in headers}
