"""Shapes that weights have once units of channels are out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from optc.passes.prune.structured.channels import Channels


def initializers_of(channels: Iterable[Channels]) -> list[ir.Value]:
    """Of all weights that lose rows or columns with them."""
    return [
        linear.initializer
        for one in channels
        for linear in (*one.linears, *(rows.linear for rows in one.rows))
    ]


def shapes_without(
    channels: Sequence[Channels], left: Sequence[int]
) -> dict[ir.Value, tuple[int, int]]:
    """[N, K] of the weights that change, where ``left`` units of each stay."""
    shapes: dict[ir.Value, tuple[int, int]] = {}
    for one, stay in zip(channels, left, strict=True):
        for linear in one.linears:
            rows, columns = shapes.get(linear.initializer, linear.weight.rows_shape)
            whole = linear.weight.rows_shape[1]
            shapes[linear.initializer] = rows, columns - whole // one.units * (one.units - stay)
        for part in one.rows:
            linear = part.linear
            rows, columns = shapes.get(linear.initializer, linear.weight.rows_shape)
            gone = part.size // one.units * (one.units - stay)
            shapes[linear.initializer] = rows - gone, columns
    return shapes
