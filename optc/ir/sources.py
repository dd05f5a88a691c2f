"""The original tensors of a weight's rows, for adapters, calibrations and reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import onnx_ir as ir

from optc.runtime.executable.row_ranges import Ints, Range, ranges_of, rows_of

#: Metadata key of an initializer that is not an original tensor itself. Nobody else reads it.
_KEY = "optc.sources"
_ALWAYS = ("name", "start", "stop")


@dataclass(frozen=True)
class Source:
    """Rows ``start:stop`` of a weight are the original tensor ``name``.

    Attributes:
        tensor: The tensor of the checkpoint, where the rows are some of its rows, or those in
            another order; ``name`` then tells them from others of the same tensor.
        of: How many rows that tensor has.
        ranges: Which of them these are.
    """

    name: str
    start: int
    stop: int
    tensor: str = ""
    of: int = 0
    ranges: tuple[Range, ...] = ()


def sources_of(initializer: ir.Value, rows: int) -> tuple[Source, ...]:
    """The original tensors of a weight of ``rows`` rows; the weight itself if it is one."""
    stated = initializer.metadata_props.get(_KEY)
    if stated is None:
        return (Source(str(initializer.name), 0, rows),)
    return tuple(_read(**entry) for entry in json.loads(stated))


def _read(ranges: Sequence[Sequence[int]] = (), **entry: Any) -> Source:
    return Source(**entry, ranges=tuple((first, step, count) for first, step, count in ranges))


def taken_rows(initializer: ir.Value, rows: int, taken: Ints, name: str) -> tuple[Source, ...]:
    """The original tensor of a weight ``name`` that is made of rows of another one, in any order.

    Args:
        initializer: The weight that they are taken of.
        rows: How many it has.
        taken: [N] indices of its rows.
        name: Of the new weight.

    Returns:
        One, or none where that weight is made of several tensors itself.
    """
    whole, *others = sources_of(initializer, rows)
    if others:
        return ()
    if whole.tensor:
        kept, of, tensor = rows_of(whole.ranges)[taken], whole.of, whole.tensor
    else:
        kept, of, tensor = taken, rows, whole.name
    return (Source(name, 0, len(taken), tensor, of, ranges_of(kept)),)


def side_by_side(parts: Sequence[tuple[ir.Value, int]]) -> tuple[Source, ...]:
    """The original tensors of weights put one below the other; each with its number of rows."""
    found: list[Source] = []
    above = 0
    for initializer, rows in parts:
        found += [
            replace(one, start=above + one.start, stop=above + one.stop)
            for one in sources_of(initializer, rows)
        ]
        above += rows
    return tuple(found)


def sources_metadata(sources: Sequence[Source]) -> dict[str, str]:
    """Metadata for the initializer that is made of these tensors."""
    return {_KEY: json.dumps([_stated(one) for one in sources])}


def _stated(source: Source) -> dict[str, Any]:
    """Without what most do not have."""
    return {key: value for key, value in asdict(source).items() if value or key in _ALWAYS}
