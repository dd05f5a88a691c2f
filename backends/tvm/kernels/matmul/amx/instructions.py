"""Tiles of AMX: eight registers of up to 16 rows of 64 bytes, and their products.

Kernels name registers by number. LLVM chooses none and moves none, so that a tile keeps what it
holds until it is released or configured anew; no other function may be called meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script.builder import ir as tir

#: Rows of a tile, and bytes of one of them.
ROWS, BYTES = 16, 64
#: Bytes of a configuration (Intel's manual, volume 1, "Intel AMX Configuration"): the palette, then
#: from these places on the bytes of a row of each tile, two bytes each, and the rows of each.
CONFIG_BYTES, WIDTHS, HEIGHTS = 64, 16, 48


@dataclass(frozen=True)
class Shape:
    """The shape of a tile.

    Attributes:
        rows: 1 to 16, a number or an int32.
        bytes: Of a row, 4 to 64, a multiple of 4.
    """

    rows: Any = ROWS
    bytes: int = BYTES


def even_depth(width: int) -> int:
    """The most bytes of a product, up to 64 and a multiple of 4, that divide ``width`` evenly."""
    return max(depth for depth in range(4, BYTES + 1, 4) if width % depth == 0)


def start_config(config: Any) -> None:
    """Write what all configurations share to u8 [`CONFIG_BYTES`]: palette 1, no tiles."""
    with tir.serial(CONFIG_BYTES) as index:
        tir.buffer_store(config, tir.uint8(0), [index])
    tir.buffer_store(config, tir.uint8(1), [0])


def configure(config: Any, shapes: Mapping[int, Shape]) -> None:
    """Give tiles their shapes, and zeros; ``config`` is what `start_config` wrote. Tiles that are
    not named keep the shapes that it holds."""
    for tile, shape in shapes.items():
        tir.buffer_store(config, tir.uint8(shape.bytes), [WIDTHS + 2 * tile])
        tir.buffer_store(config, tir.cast(shape.rows, "uint8"), [HEIGHTS + tile])
    _call("ldtilecfg", tir.address_of(config[0]))


def zero(tile: int) -> None:
    """Make a tile zero."""
    _call("tilezero", tir.int8(tile))


def load(tile: int, address: Any, stride: Any) -> None:
    """Load a tile from memory, whose rows lie ``stride`` bytes apart."""
    _call("tileloadd64", tir.int8(tile), address, _wide(stride))


def store(tile: int, address: Any, stride: Any) -> None:
    """Store a tile to memory, in rows ``stride`` bytes apart."""
    _call("tilestored64", tir.int8(tile), address, _wide(stride))


def dot_bytes(total: int, activations: int, weights: int) -> None:
    """tdpbsud: add products of s8 [m, 4 k] and u8 [k, n, 4] to int32 [m, n], exactly."""
    _call("tdpbsud", tir.int8(total), tir.int8(activations), tir.int8(weights))


def dot_bfloat16(total: int, activations: int, weights: int) -> None:
    """tdpbf16ps: add products of bfloat16 [m, 2 k] and [k, n, 2] to float32 [m, n]; even and odd
    ones are summed apart, denormals are zero."""
    _call("tdpbf16ps", tir.int8(total), tir.int8(activations), tir.int8(weights))


def release() -> None:
    """Give the tiles back: what switches threads then saves none."""
    _call("tilerelease")


def _wide(stride: Any) -> Any:
    return tir.int64(stride) if isinstance(stride, int) else tir.cast(stride, "int64")


def _call(name: str, *operands: Any) -> None:
    tir.evaluate(tir.call_llvm_intrin("void", f"llvm.x86.{name}", *operands))
