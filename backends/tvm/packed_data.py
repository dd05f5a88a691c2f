"""The manifest's data that a load of an engine over packed rows reads, beside the interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from optc.backends.tvm.engine_data import CpuEngineData
from optc.runtime.executable.executable import LayerKV
from optc.system.foreign.typed_json import Count, Positive, typed

_WHERE = "tvm engine: data"


class Packed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The packing of named tensors into rows.

    Attributes:
        ids: Input [batch, tokens] of token ids.
        mask: Input that is 1 where a token is no padding; empty: no token is padding.
        types: Input of types of tokens; empty: there is none.
        vocabulary: Ids are below it.
        type_count: Types are below it.
        position_count: Sequences have at most so many tokens; 0: as many as the interface says.
        by_token: Outputs with a row for each token; of others a sequence has one.
        max_rows: Most rows of a call of the engine.
        max_sequences: Most sequences of one.
        layers: Shapes of keys and values, each with pools of its own.
    """

    ids: str
    mask: str
    types: str
    vocabulary: Positive
    type_count: Count
    position_count: Count
    by_token: tuple[str, ...]
    max_rows: Positive
    max_sequences: Positive
    layers: tuple[LayerKV, ...]


class PackedEngineData(CpuEngineData, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a CPU engine over packed rows."""

    packed: Packed


def read_packed(data: Mapping[str, Any]) -> PackedEngineData:
    """The data that a build wrote.

    Raises:
        ArtifactError: A key is missing, unknown, of another type or out of range, or weights
            overlap.
    """
    return typed(data, PackedEngineData, _WHERE)
