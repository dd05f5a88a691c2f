"""Which original tensors the rows of a weight are: adapters, calibrations and reports need it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import onnx_ir as ir

#: Metadata key of an initializer that is not an original tensor itself. Nobody else reads it.
_KEY = "optc.sources"


@dataclass(frozen=True)
class Source:
    """Rows ``start:stop`` of a weight are the original tensor ``name``."""

    name: str
    start: int
    stop: int


def sources_of(initializer: ir.Value, rows: int) -> tuple[Source, ...]:
    """The original tensors of a weight of ``rows`` rows; the weight itself if it is one."""
    stated = initializer.metadata_props.get(_KEY)
    if stated is None:
        return (Source(str(initializer.name), 0, rows),)
    return tuple(Source(**entry) for entry in json.loads(stated))


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
    return {_KEY: json.dumps([asdict(one) for one in sources])}
