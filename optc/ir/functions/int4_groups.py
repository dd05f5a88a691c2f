"""The values of int4 pools: 4 bits a value, in groups of 16 with scales and zero points.

A head's values x [D] first become integers i = round(x / S), with S = bfloat16(max|x| / 119), or 1
where that is 0. A group of 16 then has an integer scale s, 1 to 16, and a zero point z, 0 to 15,
and represents i by s * (q - z), q from 0 to 15. Of the two scales next to (highest - lowest) / 15,
zero counted among the values, the one of less squared error is taken, the larger if they are equal.
All of that is exact, so that every implementation gives the same bits; and s * (q - z) is an int8.
Scales of two levels are those of QServe (Lin et al., arXiv:2405.04532), for weights.
"""

from __future__ import annotations

from optc.ir.functions.operator import integers, real
from optc.runtime.executable.executable import INT4_GROUP

#: A head's largest integer: half of the largest scale below it, its rounding is still an int8.
LARGEST = 119


def grouped(kind: str) -> list[str]:
    """Statements for ``{kind}_kept_rows`` of ``{kind}_rows`` [..., D], D a multiple of 16."""
    rows = f"{kind}_rows"
    return [
        integers(f"{kind}_last", (-1,)),
        real(f"{kind}_zero", 0.0),
        real(f"{kind}_one", 1.0),
        real(f"{kind}_top", 15.0),
        real(f"{kind}_most", 16.0),
        real(f"{kind}_largest", float(LARGEST)),
        f"{kind}_magnitude = Abs ({rows})",
        f"{kind}_peak = ReduceMax <keepdims: int = 1> ({kind}_magnitude, {kind}_last)",
        f"{kind}_step = Div ({kind}_peak, {kind}_largest)",
        f"{kind}_step_16 = Cast <to: int = 16> ({kind}_step)",
        f"{kind}_step_32 = Cast <to: int = 1> ({kind}_step_16)",
        f"{kind}_empty = Equal ({kind}_step_32, {kind}_zero)",
        f"{kind}_of_one = Where ({kind}_empty, {kind}_one, {kind}_step_32)",
        f"{kind}_ratio = Div ({rows}, {kind}_of_one)",
        f"{kind}_whole = Round ({kind}_ratio)",
        f"{kind}_row_shape = Shape ({rows})",
        integers(f"{kind}_group_tail", (-1, INT4_GROUP)),
        f"{kind}_ahead = Shape <end: int = -1> ({rows})",
        f"{kind}_group_shape = Concat <axis: int = 0> ({kind}_ahead, {kind}_group_tail)",
        f"{kind}_in_groups = Reshape ({kind}_whole, {kind}_group_shape)",
        f"{kind}_high_of = ReduceMax <keepdims: int = 1> ({kind}_in_groups, {kind}_last)",
        f"{kind}_low_of = ReduceMin <keepdims: int = 1> ({kind}_in_groups, {kind}_last)",
        f"{kind}_high = Max ({kind}_high_of, {kind}_zero)",
        f"{kind}_low = Min ({kind}_low_of, {kind}_zero)",
        f"{kind}_depth = Neg ({kind}_low)",
        f"{kind}_range = Sub ({kind}_high, {kind}_low)",
        f"{kind}_wanted = Div ({kind}_range, {kind}_top)",
        *_coded(kind, "wide", "Ceil"),
        *_coded(kind, "tight", "Floor"),
        f"{kind}_better = Less ({kind}_tight_error, {kind}_wide_error)",
        f"{kind}_best = Where ({kind}_better, {kind}_tight_values, {kind}_wide_values)",
        f"{kind}_best_rows = Reshape ({kind}_best, {kind}_row_shape)",
        f"{kind}_kept_rows = Mul ({kind}_best_rows, {kind}_of_one)",
    ]


def _coded(kind: str, name: str, rounding: str) -> list[str]:
    """The integers by one scale, ``{kind}_{name}_values``, and their squared error."""
    this = f"{kind}_{name}"
    return [
        f"{this}_next = {rounding} ({kind}_wanted)",
        f"{this}_scale = Clip ({this}_next, {kind}_one, {kind}_most)",
        f"{this}_depth = Div ({kind}_depth, {this}_scale)",
        f"{this}_nearest = Round ({this}_depth)",
        f"{this}_point = Min ({this}_nearest, {kind}_top)",
        f"{this}_steps = Div ({kind}_in_groups, {this}_scale)",
        f"{this}_rounded = Round ({this}_steps)",
        f"{this}_moved = Add ({this}_rounded, {this}_point)",
        f"{this}_code = Clip ({this}_moved, {kind}_zero, {kind}_top)",
        f"{this}_signed = Sub ({this}_code, {this}_point)",
        f"{this}_values = Mul ({this}_signed, {this}_scale)",
        f"{this}_lost = Sub ({this}_values, {kind}_in_groups)",
        f"{this}_square = Mul ({this}_lost, {this}_lost)",
        f"{this}_error = ReduceSum <keepdims: int = 1> ({this}_square, {kind}_last)",
    ]
