"""Embedding lookup, from a table of its own or from the packed weight of a tied head."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    SERIAL_WORK,
    Expr,
    KernelBuilder,
    bind,
    for_rows,
    kernel,
    lane,
    load,
    round_up,
    splat,
    store,
)
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part
from optc.backends.tvm.weights.packing import PLANES
from optc.errors import UnsupportedError

#: Output channels of a block of a packed weight, and the multiple K is padded to.
_BLOCK, _K_MULTIPLE = 64, 32
#: Input channels that lie side by side in a packed weight.
_FOUR = 4


@dataclass(frozen=True)
class Embedding:
    """Lookup in a table of floats.

    Attributes:
        vocab: V, rows.
        width: D.
        dtype: ``float32``, or ``bfloat16`` for a table of bfloat16 bits as uint16.
        packed: The table is the packed bfloat16 weight of a tied head, not row-major: row
            ``token`` is output channel ``token``.
    """

    vocab: int
    width: int
    dtype: str = "float32"
    packed: bool = False


@dataclass(frozen=True)
class QuantizedEmbedding:
    """Lookup in the packed weight of a tied head: row ``token`` is output channel ``token``.

    Attributes:
        vocab: V, output channels of the head.
        width: D, input channels of the head.
        bits: 8 or 4; 2 to 6 with ``two_level``.
        group_size: Input channels that share a scale; 0 is one scale per channel.
        asymmetric: There are zero points; else stored values are q + 128 or q + 8.
        two_level: Groups have integer scales and offsets, as `two_level_matmul`'s.
    """

    vocab: int
    width: int
    bits: int
    group_size: int = 0
    asymmetric: bool = False
    two_level: bool = False


def embedding(config: Embedding, isa: Isa) -> tvm.tirx.PrimFunc:
    """table f32 or u16 (bfloat16 bits) [V,D], tokens i32 [T] -> out f32 [T,D].

    The packed table is u16 [V/64,D/2,64,2], both rounded up.

    ``isa`` changes nothing: every instruction set runs the same operations.

    Raises:
        UnsupportedError: The table's type or layout has no kernel.
    """
    if config.packed:
        return _packed_embedding(config)
    stored = {"float32": "float32", "bfloat16": "uint16"}.get(config.dtype)
    if stored is None:
        raise UnsupportedError(
            f"an embedding table of {config.dtype} has no CPU kernel",
            where="Embedding",
            hint="float32 or bfloat16",
        )
    width = config.width
    with kernel("embedding") as builder:
        rows = builder.size()
        table = builder.argument("table", (config.vocab, width), stored)
        tokens = builder.argument("tokens", (rows,), "int32")
        out = builder.argument("out", (rows, width))

        def body(row: Expr) -> None:
            token = bind(tokens[row])

            def copy(offset: Expr | int, count: int) -> None:
                value = load_part(table, count, token, offset)
                if stored == "uint16":
                    bits = tir.cast(value, f"uint32x{LANES}") << splat(16, "uint32")
                    value = tir.reinterpret(bits, dtype=f"float32x{LANES}")
                store_part(out, value, count, row, offset)

            for_vectors(width, copy)

        for_rows(rows, rows * width > SERIAL_WORK, body)
    return builder.finish()


def _packed_embedding(config: Embedding) -> tvm.tirx.PrimFunc:
    if config.dtype != "bfloat16":
        raise UnsupportedError(
            f"a packed table of {config.dtype} has no CPU kernel",
            where="Embedding",
            hint="packed tables are bfloat16",
        )
    width, pairs = config.width, round_up(config.width, 2) // 2
    blocks = round_up(config.vocab, _BLOCK) // _BLOCK
    with kernel("packed_embedding") as builder:
        rows = builder.size()
        table = builder.argument("table", (blocks, pairs, _BLOCK, 2), "uint16")
        tokens = builder.argument("tokens", (rows,), "int32")
        out = builder.argument("out", (rows, width))

        def body(row: Expr) -> None:
            token = bind(tokens[row])
            block, column = bind(token // _BLOCK), bind(token % _BLOCK)

            def pair(k: Expr | int) -> Expr:
                """Channels 2k and 2k + 1."""
                bits = tir.cast(load(table, block, k, column, 0, lanes=2), "uint32x2")
                wide = bits << splat(16, "uint32", 2)
                return bind(tir.reinterpret(wide, dtype="float32x2"))

            with tir.serial(0, width // 2) as k:
                store(out, pair(k), row, k * 2)
            if width % 2:
                store(out, lane(pair(pairs - 1), 0), row, width - 1)

        for_rows(rows, rows * width > SERIAL_WORK, body)
    return builder.finish()


def quantized_embedding(config: QuantizedEmbedding, isa: Isa) -> tvm.tirx.PrimFunc:
    """tokens i32 [T], w u8 [N/64,Kp*bits/32,64,4], ws [N/64,G,64] (f32 per
    channel, f16 with groups), [wz u8 [N/64,G,64]] -> out f32 [T,D]; with ``two_level`` wg u8
    [N/64,G,2,64] and ws f32 [N/64,1,64] behind w.

    out = (q - zero) * scale in float32, as DequantizeLinear; with ``two_level`` the integer
    (q * integer scale + offset - 128) is scaled. ``isa`` changes nothing: every
    instruction set runs the same operations.

    Raises:
        UnsupportedError: Bits or group size have no packed layout.
    """
    _check(config)
    width, group = config.width, config.group_size or config.width
    blocks = round_up(config.vocab, _BLOCK) // _BLOCK
    groups = round_up(width, group) // group
    with kernel("quantized_embedding") as builder:
        rows = builder.size()
        tokens = builder.argument("tokens", (rows,), "int32")
        steps = round_up(width, _K_MULTIPLE) * config.bits // 32
        w = builder.argument("w", (blocks, steps, _BLOCK, _FOUR), "uint8")
        operands = _parameters(builder, config, blocks, groups)
        out = builder.argument("out", (rows, width))

        def body(row: Expr) -> None:
            token = bind(tokens[row])
            block, column = bind(token // _BLOCK), bind(token % _BLOCK)

            def four(k: Expr | int) -> Expr:
                """Channels 4k .. 4k + 3."""
                index = k * _FOUR // group
                stored = _stored_four(w, config.bits, block, column, k)
                steps, scale = operands.steps(stored, block, index, column)
                return bind(tir.cast(steps, "float32x4") * splat(scale, lanes=_FOUR))

            with tir.serial(0, width // _FOUR) as k:
                store(out, four(k), row, k * _FOUR)
            if rest := width % _FOUR:
                last = four(width // _FOUR)
                for index in range(rest):
                    store(out, lane(last, index), row, width - rest + index)

        for_rows(rows, rows * width > SERIAL_WORK, body)
    return builder.finish()


@dataclass(frozen=True)
class _Parameters:
    """Scales and zero points of a packed weight.

    Attributes:
        scales: [N/64, G, 64].
        zeros: u8 of that shape, or None.
        groups: u8 [N/64, G, 2, 64], integer scales and offsets, or None.
        bits: Of the values.
    """

    scales: Expr
    zeros: Expr | None
    groups: Expr | None
    bits: int

    def steps(self, stored: Expr, block: Expr, group: Expr, column: Expr) -> tuple[Expr, Expr]:
        """Four stored values, int32x4, as whole steps of a scale, and that scale, float32."""
        if self.groups is not None:
            factor, offset = (
                tir.cast(self.groups[block, group, i, column], "int32") for i in (0, 1)
            )
            steps = stored * splat(factor, lanes=_FOUR) + splat(offset - 128, lanes=_FOUR)
            return steps, self.scales[block, 0, column]
        zero: Expr = tir.int32(1 << (self.bits - 1))
        if self.zeros is not None:
            zero = tir.cast(self.zeros[block, group, column], "int32")
        scale = tir.cast(self.scales[block, group, column], "float32")
        return stored - splat(zero, lanes=_FOUR), scale


def _parameters(
    builder: KernelBuilder, config: QuantizedEmbedding, blocks: int, groups: int
) -> _Parameters:
    """Declare them as the next arguments."""
    if config.two_level:
        both = builder.argument("wg", (blocks, groups, 2, _BLOCK), "uint8")
        return _Parameters(builder.argument("ws", (blocks, 1, _BLOCK)), None, both, config.bits)
    shape = (blocks, groups, _BLOCK)
    scales = builder.argument("ws", shape, "float16" if config.group_size else "float32")
    zeros = builder.argument("wz", shape, "uint8") if config.asymmetric else None
    return _Parameters(scales, zeros, None, config.bits)


def _stored_four(w: Expr, bits: int, block: Expr, column: Expr, k: Expr | int) -> Expr:
    """Stored values of channels 4k .. 4k + 3, int32x4, as `pack_int` lays them out."""
    planes = PLANES[bits]
    fours = 8 // min(planes)  # of a unit of rows, the low bits before the high ones
    first, four = k // fours * (bits // min(planes)), k % fours
    result: Expr = splat(0, "int32", _FOUR)
    before = 0
    for plane in planes:
        row = first + before // min(planes) + four // (8 // plane)
        packed = tir.cast(load(w, block, row, column, 0, lanes=_FOUR), "int32x4")
        field = packed >> splat(four % (8 // plane) * plane, "int32", _FOUR)
        part = field & splat((1 << plane) - 1, "int32", _FOUR)
        result = result | (part << splat(before, "int32", _FOUR))
        before += plane
    return result


def _check(config: QuantizedEmbedding) -> None:
    known = (6, 5, 4, 3, 2) if config.two_level else (4, 8)
    if config.bits not in known or config.group_size % _K_MULTIPLE:
        raise UnsupportedError(
            f"no packed layout for {config.bits} bits in groups of {config.group_size}",
            where="QuantizedEmbedding",
            hint="bits 4 or 8, with integer scales 2 to 6; group_size 0 (per channel) or a "
            "multiple of 32",
        )
