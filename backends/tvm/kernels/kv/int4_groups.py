"""One token's values of one head as int4: the bits of `optc.ir.functions.int4_groups`."""

from __future__ import annotations

from dataclasses import dataclass

from tvm.tirx.script.builder import ir as tir

from optc.backends.tvm.kernels.dsl import bf16
from optc.backends.tvm.kernels.dsl.script import (
    LANES,
    Expr,
    absolute,
    bind,
    intrinsic,
    lanes_of,
    load,
    register,
    round_even,
    scratch,
    splat,
    store,
    tree_max,
    tree_sum,
)
from optc.backends.tvm.kernels.dsl.vectors import reduce_row
from optc.runtime.executable.executable import INT4_GROUP

#: The largest integer of a head.
_LARGEST = 119.0
#: Largest code and zero point, and largest scale of a group.
_TOP, _SCALES = 15.0, 16.0


@dataclass(frozen=True)
class _Coded:
    """A group by one scale: codes float32x16, scale, zero point and squared error, float32."""

    codes: Expr
    scale: Expr
    point: Expr
    error: Expr


def encode_groups(values: Expr, dim: int) -> tuple[Expr, Expr, Expr]:
    """``values`` float32 [dim], dim a multiple of 32: bytes of two codes u8 [dim / 2], the scale, a
    bfloat16 as float32, and bytes of groups u8 [dim / 16]."""
    codes, groups = scratch((dim // 2,), "uint8"), scratch((dim // INT4_GROUP,), "uint8")
    scale = _scale(values, dim)
    with tir.serial(0, dim // (2 * INT4_GROUP)) as pair:
        halves = []
        for half in range(2):
            group = bind(pair * 2 + half)
            coded = _coded(load(values, group * INT4_GROUP), scale)
            byte = coded.scale - tir.float32(1) + coded.point * tir.float32(16)
            store(groups, tir.cast(tir.cast(byte, "int32"), "uint8"), group)
            halves.append(bind(tir.cast(coded.codes, f"int32x{LANES}")))
        both = halves[0] + (halves[1] << splat(4, "int32"))
        store(codes, tir.cast(both, f"uint8x{LANES}"), pair * LANES)
    return codes, scale, groups


def _scale(values: Expr, dim: int) -> Expr:
    """max|values| / 119 rounded to bfloat16, or 1 where that is 0."""
    largest = reduce_row(
        dim,
        0.0,
        lambda partial, d, count: partial.set(tir.max(partial.get(), absolute(load(values, d)))),
        tir.max,
    )
    step = bind(largest / tir.float32(_LARGEST))
    rounded = bind(bf16.as_float(bf16.round_bits(step)))
    return bind(tir.Select(rounded == tir.float32(0), tir.float32(1), rounded))


def _coded(values: Expr, scale: Expr) -> _Coded:
    """16 values by the better of the two scales next to the exact one."""
    zero = tir.float32(0)
    whole = _kept(round_even(values / splat(scale)))
    high = _kept(tir.max(tree_max(whole), zero))
    depth = _kept(tir.max(tree_max(splat(0.0) - whole), zero))
    wanted = _kept((high + depth) / tir.float32(_TOP))
    wide = _by(whole, depth, intrinsic("llvm.ceil", "float32", wanted))
    tight = _by(whole, depth, intrinsic("llvm.floor", "float32", wanted))
    better = bind(tight.error < wide.error)
    return _Coded(
        bind(tir.Select(splat(better), tight.codes, wide.codes)),
        bind(tir.Select(better, tight.scale, wide.scale)),
        bind(tir.Select(better, tight.point, wide.point)),
        bind(tir.Select(better, tight.error, wide.error)),
    )


def _by(whole: Expr, depth: Expr, wanted: Expr) -> _Coded:
    """Integers ``whole`` by a scale, of which none is below -``depth``."""
    scale = _kept(tir.min(tir.max(wanted, tir.float32(1)), tir.float32(_SCALES)))
    point = _kept(tir.min(round_even(depth / scale), tir.float32(_TOP)))
    moved = round_even(whole / splat(scale)) + splat(point)
    codes = _kept(tir.min(tir.max(moved, splat(0.0)), splat(_TOP)))
    lost = _kept((codes - splat(point)) * splat(scale) - whole)
    return _Coded(codes, scale, point, _kept(tree_sum(lost * lost)))


def _kept(value: Expr) -> Expr:
    """The value, from a variable: the compiler's simplifier puts what is only named in the place of
    its name, and a chain of reductions would grow by a factor with each of them."""
    lanes = lanes_of(value)
    return bind(register(value, lanes=lanes).get())
