"""The parameters of the model's class out of an engine's weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from optc.compiling.export.origins.origin import Ints, Kind, Origin
from optc.compiling.export.origins.trace import Origins
from optc.errors import UnsupportedError
from optc.ir.engine_weights import EngineWeight
from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import Array, LazyWeight, concatenate_rows, permute_rows

#: A parameter by rows, on the grid that the engine has.
Weight = QuantizedRows | LazyWeight
#: What passes and backends add to a weight's name.
_ADDED = (".quantized", ".bfloat16", ".transposed", ".rows")
#: Of experts: [E, N, K].
_STACK_AXES = 3
_HINT = "only weights that are still parameters of the model's class have an equivalent"


@dataclass(frozen=True)
class _Part:
    """Rows of one weight of the engine that are rows of a parameter.

    Attributes:
        name: Of the weight.
        weight: The weight.
        rows: int64, its rows.
        own: int64, what each of them is in the parameter.
        origin: Of the weight.
    """

    name: str
    weight: Weight
    rows: Ints
    own: Ints
    origin: Origin


def graph_name(name: str, known: Mapping[str, object]) -> str | None:
    """The name of an engine's weight in the graph before it was quantized; None if it has none."""
    plain = name
    while plain not in known:
        end = next((one for one in _ADDED if plain.endswith(one)), "")
        if not end:
            return None
        plain = plain.removesuffix(end)
    return plain


def read_parameters(
    weights: Mapping[str, EngineWeight], origins: Origins, *, floats: bool = False
) -> dict[str, Weight]:
    """Every parameter of the class by name; of parameters that share memory the first one.

    Args:
        weights: Of the engine by name.
        origins: Of the graph's weights.
        floats: All are dequantized.

    Raises:
        UnsupportedError: The engine lacks one, or has weights that are none.
        ArtifactError: A weight has another shape than the config says.
    """
    parts = dict[str, list[_Part]]()
    for name, weight in weights.items():
        plain = graph_name(name, origins.by_name)
        origin = None if plain is None else origins.by_name[plain]
        if origin is None:
            if plain in origins.computed or (plain is None and ".weight" in name):
                raise UnsupportedError(
                    "is no parameter of the model's class", where=name, hint=_HINT
                )
            continue
        numbers = np.unique(origin.number).tolist()
        shape = origins.shapes[origins.names[numbers[0]]]
        # rows of experts lie below each other
        experts = shape[0] if len(shape) == _STACK_AXES else 1
        whole = weight.rows(origin.shape, experts)
        for number in numbers:
            rows = np.flatnonzero(origin.number == number)
            parameter = origins.names[number]
            own = _own(origin, rows, origins.shapes[parameter])
            parts.setdefault(parameter, []).append(_Part(name, whole, rows, own, origin))
    missing = [name for name in origins.names if name not in parts]
    if missing:
        raise UnsupportedError(
            f"the engine has no weights for {len(missing)} parameters of the model's class",
            where=missing[0],
            hint=_HINT,
        )
    return {name: _parameter(name, parts[name], origins, floats) for name in origins.names}


def shape_of(weight: Weight) -> tuple[int, ...]:
    """By rows."""
    if isinstance(weight, QuantizedRows):
        return weight.rows, weight.columns
    return weight.rows_shape


def rows_between(weight: Weight, start: int, stop: int) -> Weight:
    """Rows ``start:stop`` of a weight."""
    if isinstance(weight, QuantizedRows):
        read = weight.read
        return replace(weight, read=lambda a, b: read(start + a, start + b), rows=stop - start)
    rows = weight.read_rows
    return LazyWeight(
        lambda a, b: rows(start + a, start + b),
        (stop - start, *weight.rows_shape[1:]),
        weight.dtype,
        weight.name or "",
    )


def as_floats(weight: Weight) -> LazyWeight:
    """A weight whose rows are float32 or bfloat16."""
    if isinstance(weight, LazyWeight):
        return weight
    shape = (weight.rows, weight.columns)
    return LazyWeight(weight.floats, shape, ir.DataType.FLOAT, weight.name)


def _own(origin: Origin, rows: Ints, shape: tuple[int, ...]) -> Ints:
    """The places of a weight's rows in a parameter; columns are counted through all experts."""
    if origin.kind is not Kind.COLUMNS:
        return origin.index[rows]
    return origin.first[rows] // shape[-2] * shape[-1] + origin.index[rows]


def _parameter(name: str, parts: Sequence[_Part], origins: Origins, floats: bool) -> Weight:
    """One parameter: by rows [N, K] of all experts, or [N], as the class has it."""
    shape, kind = origins.shapes[name], parts[0].origin.kind
    if any(part.origin.kind is not kind for part in parts):
        raise UnsupportedError("lies in the engine in two ways", where=name, hint=_HINT)
    if not floats and len({isinstance(part.weight, QuantizedRows) for part in parts}) > 1:
        raise UnsupportedError(
            "is stored both quantized and in floats, of which a checkpoint takes one",
            where=name,
            hint="compile the model again with the embedding and the head in one form",
        )
    # floats first: where both are there, those lost nothing
    ordered = sorted(parts, key=lambda part: isinstance(part.weight, QuantizedRows))
    if kind is Kind.ELEMENTS:
        whole = _gathered(name, ordered, math.prod(shape), floats=True)
        return _reshaped(as_floats(whole), shape) if len(shape) > 1 else whole
    if kind is Kind.ROWS:
        return _gathered(name, ordered, math.prod(shape[:-1]), floats=floats)
    experts = math.prod(shape[:-2])
    if any(shape_of(part.weight)[1:] != shape[-2:-1] for part in ordered):
        raise UnsupportedError(
            "lies in the engine by expert, and in the class as one matrix", where=name, hint=_HINT
        )
    columns = _gathered(name, ordered, experts * shape[-1], floats=True)
    return _transposed(as_floats(columns), shape)


def _gathered(name: str, parts: Sequence[_Part], count: int, *, floats: bool) -> Weight:
    """``count`` rows, each from the first part that has it; those that none has are zeros: the
    engine never reads them."""
    which, row = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    used: list[_Part] = []
    offsets = 0
    for part in parts:
        free = which[part.own] < 0
        if free.any():
            which[part.own[free]] = len(used)
            row[part.own[free]] = offsets + part.rows[free]
            offsets += shape_of(part.weight)[0]
            used.append(part)
    if (which < 0).any() and len(shape_of(used[0].weight)) == 1:
        raise UnsupportedError("the engine has a part of this parameter only", where=name)
    plain = [part.weight for part in used]
    if not floats and (which >= 0).all() and not any(map(_is_changed, used)):
        grid = _one_grid(plain)
        if grid is not None:
            return _taken(grid, row)
    lazy = [_as_parameter(part) for part in used]
    whole = lazy[0] if len(lazy) == 1 else concatenate_rows([_wide(one) for one in lazy], name)
    taken = _taken(whole, row)
    assert isinstance(taken, LazyWeight)
    return taken if (which >= 0).all() else _with_zeros(taken, which < 0)


def _is_changed(part: _Part) -> bool:
    return (part.origin.offset, part.origin.slope) != (0.0, 1.0)


def _one_grid(weights: Sequence[Weight]) -> QuantizedRows | None:
    grids = [one for one in weights if isinstance(one, QuantizedRows)]
    if len(grids) < len(weights) or not grids:
        return None
    return grids[0] if len(grids) == 1 else grids[0].above(grids[1:])


def _taken(weight: Weight, rows: Ints) -> Weight:
    first, count = int(rows[0]), len(rows)
    if np.array_equal(rows, np.arange(first, first + count)):
        return (
            weight if count == shape_of(weight)[0] else rows_between(weight, first, first + count)
        )
    if isinstance(weight, QuantizedRows):
        return weight.taken(rows)
    return permute_rows(weight, rows)


def _as_parameter(part: _Part) -> LazyWeight:
    """The weight as the parameter's numbers: what was done to them as they were read is undone."""
    weight = as_floats(part.weight)
    if not _is_changed(part):
        return weight
    offset, slope = np.float32(part.origin.offset), np.float32(part.origin.slope)
    return _wide(weight).map_rows(lambda rows: (rows - offset) / slope, ir.DataType.FLOAT)


def _wide(weight: LazyWeight) -> LazyWeight:
    """In float32, seen by rows."""
    read = weight.read_rows
    return LazyWeight(
        lambda start, stop: np.asarray(read(start, stop)).astype(np.float32),
        weight.rows_shape,
        ir.DataType.FLOAT,
        weight.name or "",
    )


def _with_zeros(weight: LazyWeight, missing: Array) -> LazyWeight:
    read = _wide(weight).read_rows

    def rows(start: int, stop: int) -> Array:
        found = np.array(read(start, stop))
        found[missing[start:stop]] = 0
        return found

    return LazyWeight(rows, weight.rows_shape, ir.DataType.FLOAT, weight.name or "")


def _reshaped(vector: LazyWeight, shape: tuple[int, ...]) -> LazyWeight:
    """A vector as rows of the last axis."""
    width, read = shape[-1], vector.read_rows
    return LazyWeight(
        lambda start, stop: np.asarray(read(start * width, stop * width)).reshape(-1, width),
        (math.prod(shape[:-1]), width),
        ir.DataType(vector.dtype),
        vector.name or "",
    )


def _transposed(columns: LazyWeight, shape: tuple[int, ...]) -> LazyWeight:
    """The rows [E * K, N] of matrices whose columns [E * N, K] lie below each other."""
    height, width = shape[-2:]

    def read(start: int, stop: int) -> Array:
        found = []
        for expert in range(start // height, -(-stop // height)):
            low, high = max(start - expert * height, 0), min(stop - expert * height, height)
            own = rows_between(columns, expert * width, (expert + 1) * width)
            assert isinstance(own, LazyWeight)
            pieces = [np.asarray(own.read_rows(a, b))[:, low:high] for a, b in own.tiles()]
            found.append(np.concatenate(pieces).T)
        return np.ascontiguousarray(np.concatenate(found))

    rows = math.prod(shape[:-1])
    return LazyWeight(read, (rows, width), ir.DataType(columns.dtype), columns.name or "")
