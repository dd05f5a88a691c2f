"""Writing one token's key or value of one head into its slot, in the pool's type."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.isa import Isa
from optc.backends.tvm.kernels.dsl import bf16, half
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    Expr,
    bind,
    load,
    round_even,
    scratch,
    splat,
    store,
)
from optc.backends.tvm.kernels.dsl.vectors import for_vectors, load_part, reduce_row, store_part
from optc.backends.tvm.kernels.kv.int4_groups import encode_groups
from optc.backends.tvm.kernels.kv.pools import TILE, KVShape, k_element, v_element
from optc.backends.tvm.kernels.token_wise.quantize import take_maximum


def write_key(pool: Expr, shape: KVShape, slot: Expr, head: Expr, values: Expr) -> None:
    """``values`` float32 [Dk] become the key of KV head ``head`` in ``slot``."""
    tile, offset = bind(slot // TILE), bind(slot % TILE)
    encoded = _encoded(values, shape.key_dim, shape)
    pack = shape.type.pack
    with tir.serial(0, shape.type.stored(shape.key_dim) // pack) as word:
        d = word * pack
        element = load(encoded.elements, d, lanes=pack)
        store(pool, element, tile, head, k_element(shape, offset, d))
    _store_scales(pool, shape, encoded, shape.key_dim, (tile, head, offset))


def write_value(pool: Expr, shape: KVShape, slot: Expr, head: Expr, values: Expr, isa: Isa) -> None:
    """``values`` float32 [Dv] become the value of KV head ``head`` in ``slot``. ``isa`` decides
    how the bytes between those of other tokens are written."""
    tile, offset = bind(slot // TILE), bind(slot % TILE)
    encoded = _encoded(values, shape.value_dim, shape)
    elements, width = encoded.elements, shape.type.stored(shape.value_dim)
    start = bind(v_element(shape, offset, 0))

    def whole(d: Expr | int, count: int) -> None:
        store_part(pool, load_part(elements, count, d), count, tile, head, start + d)

    def between(d: Expr | int, count: int) -> None:
        line = bind((offset // shape.type.pack * width + d) * shape.type.pack)
        _store_between(
            pool, shape, (tile, head, line), offset, load_part(elements, count, d), count
        )

    if shape.type.pack == 1:
        for_vectors(width, whole)
    elif isa.lanes == LANES:
        for_vectors(width, between)
    else:
        with tir.serial(0, width) as d:
            store(pool, elements[d], tile, head, v_element(shape, offset, d))
    _store_scales(pool, shape, encoded, shape.value_dim, (tile, head, offset))


def _store_between(
    pool: Expr, shape: KVShape, at: tuple[Expr, ...], offset: Expr, values: Expr, count: int
) -> None:
    """Store 16 elements, of which ``count``, each into its token's place of a word of its own."""
    pack = shape.type.pack
    lanes = LANES * pack
    repeated = tir.cast(values, f"uint32x{LANES}") * splat(
        {2: 0x10001, 4: 0x1010101}[pack], "uint32"
    )
    numbers = tir.ramp(0, 1, lanes)
    mine = (numbers & splat(pack - 1, "int32", lanes)) == splat(offset % pack, "int32", lanes)
    if count < LANES:
        mine = tir.And(mine, numbers < splat(count * pack, "int32", lanes))
    words = tir.reinterpret(repeated, dtype=f"{shape.type.element}x{lanes}")
    columns = tir.ramp(at[-1], 1, lanes)
    tir.evaluate(tir.masked_store(pool, words, *at[:-1], columns, mine))


@dataclass(frozen=True)
class _Encoded:
    """One token's values of one head as a pool has them.

    Attributes:
        elements: Of the pool.
        scale: float32; None where the type has none.
        groups: u8 [groups], the bytes of int4's groups.
    """

    elements: Expr
    scale: Expr | None = None
    groups: Expr | None = None


def _encoded(values: Expr, dim: int, shape: KVShape) -> _Encoded:
    """``values`` [dim] as elements of the pool, and their scales if the type has some."""
    if shape.dtype == "float32":
        return _Encoded(values)
    if shape.type.group:
        return _Encoded(*encode_groups(values, dim))
    elements = scratch((dim,), shape.type.element)
    scale = _scale(values, dim) if shape.type.scaled else None

    def encode(d: Expr | int, count: int) -> None:
        value = load_part(values, count, d)
        if shape.dtype == "float16":
            encoded = half.round_bits(value)
        elif scale is None:
            encoded = bf16.upper_half(bf16.round_bits(value))
        else:
            whole = tir.cast(round_even(value / splat(scale)), f"int32x{LANES}")
            encoded = tir.cast(whole + splat(128, "int32"), f"uint8x{LANES}")
        store_part(elements, encoded, count, d)

    for_vectors(dim, encode)
    return _Encoded(elements, scale)


def _scale(values: Expr, dim: int) -> Expr:
    """max|values| / 127, or 1 if all are zero."""
    largest = reduce_row(
        dim,
        0.0,
        lambda partial, d, count: take_maximum(partial, load_part(values, count, d)),
        tir.max,
    )
    zero = largest == tir.float32(0)
    return bind(tir.Select(zero, tir.float32(1), largest / tir.float32(127)))


def _store_scales(
    pool: Expr, shape: KVShape, encoded: _Encoded, dim: int, at: tuple[Expr, Expr, Expr]
) -> None:
    """Store the scales of a token, which is ``at`` a tile, head and offset."""
    tile, head, offset = at
    kind = shape.type
    if encoded.groups is not None:
        with tir.serial(0, kind.groups(dim)) as group:
            place = TILE * kind.stored(dim) + group * TILE + offset
            store(pool, encoded.groups[group], tile, head, place)
    if encoded.scale is not None:
        size = kind.scale_bytes
        last = tir.reinterpret(encoded.scale, dtype="uint32") >> tir.uint32(32 - 8 * size)
        narrow = tir.reinterpret(tir.cast(last, f"uint{8 * size}"), dtype=f"uint8x{size}")
        store(pool, narrow, tile, head, kind.scales_at(dim) + offset * size)
