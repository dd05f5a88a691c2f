"""The block Hadamard transform of rows, alone and before quantization.

`optc.runtime.executable.block_hadamard` has its definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

import tvm
from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    SERIAL_WORK,
    Expr,
    bind,
    fma,
    for_rows,
    hold,
    kernel,
    load,
    round_up,
    scratch,
    splat,
    store,
)
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, store_part
from optc.runtime.executable.block_hadamard import bent_signs

#: A value of a block costs about as much as this many plain element operations.
COST = 2


@dataclass(frozen=True)
class BlockHadamard:
    """A rotation of rows.

    Attributes:
        width: K, channels of a row.
        block: Channels of a block: 16, 64 or 256.
        inverse: Rotate back.
    """

    width: int
    block: int
    inverse: bool = False


def rotate_row(values: Expr, width: int, block: int, *, inverse: bool = False) -> None:
    """Rotate the ``width`` values of a row in place, in the order that its definition has."""
    blocks, rest = divmod(width, block)

    def side_by_side() -> None:
        with tir.serial(0, blocks) as i:
            _rotate_block(values, i * block, block)

    def behind() -> None:
        if rest:
            _rotate_block(values, width - block, block, "behind" if inverse else "before")

    for step in (behind, side_by_side) if inverse else (side_by_side, behind):
        step()


def _rotate_block(values: Expr, first: Expr | int, block: int, signs: str = "") -> None:
    """H over √B of the values from ``first`` on: neighbours within a vector, then whole vectors.
    ``signs`` says whether bent signs are ``before`` or ``behind`` it."""
    offsets = [first + i for i in range(0, block, LANES)]
    bent = [_signs(bent_signs(block)[i : i + LANES]) for i in range(0, block, LANES)]
    vectors = [bind(load(values, offset)) for offset in offsets]
    if signs == "before":
        vectors = [bind(v * sign) for v, sign in zip(vectors, bent, strict=True)]
    for apart in (1, 2, 4, 8):
        vectors = [_within(vector, apart) for vector in vectors]
    apart = 1
    while apart < len(vectors):
        vectors = _across(vectors, apart)
        apart *= 2
    norm = splat(1 / isqrt(block))
    vectors = [bind(vector * norm) for vector in vectors]
    if signs == "behind":
        vectors = [bind(v * sign) for v, sign in zip(vectors, bent, strict=True)]
    for offset, vector in zip(offsets, vectors, strict=True):
        store(values, vector, offset)


def _signs(signs: Sequence[int]) -> Expr:
    """±1 by lane."""
    lanes = [lane + LANES * (sign < 0) for lane, sign in enumerate(signs)]
    return tvm.tirx.Shuffle([splat(1.0), splat(-1.0)], lanes)


def _within(vector: Expr, apart: int) -> Expr:
    """Sums and differences of lanes that are ``apart``: the product with ±1 rounds nothing."""
    lanes = range(LANES)
    partner = bind(tvm.tirx.Shuffle([vector], [lane ^ apart for lane in lanes]))
    signs = _signs([-1 if lane & apart else 1 for lane in lanes])
    return bind(fma(vector, signs, partner))


def _across(vectors: Sequence[Expr], apart: int) -> list[Expr]:
    """Sums and differences of vectors that are ``apart``."""
    return [
        hold(vectors[i ^ apart] - vector if i & apart else vector + vectors[i ^ apart])
        for i, vector in enumerate(vectors)
    ]


def block_hadamard(config: BlockHadamard, isa: Isa) -> tvm.tirx.PrimFunc:
    """x f32 [T,K] -> out f32 [T,K], rotated in blocks, exactly as NumPy computes it in float32.

    ``isa`` changes nothing: every instruction set runs the same operations.
    """
    width = config.width
    with kernel("block_hadamard") as builder:
        rows = builder.size()
        x = builder.argument("x", (rows, width))
        out = builder.argument("out", (rows, width))

        def body(row: Expr) -> None:
            values = scratch((round_up(width, LANES),))
            for_vectors(width, lambda o, count: store(values, load_part(x, count, row, o), o))
            rotate_row(values, width, config.block, inverse=config.inverse)
            for_vectors(width, lambda o, count: store_part(out, load(values, o), count, row, o))

        for_rows(rows, rows * (width * (1 + COST)) > SERIAL_WORK, body)
    return builder.finish()
