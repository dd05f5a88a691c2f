from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
from msgspec import Struct

from optc.errors import ArtifactError
from optc.system.foreign.typed_json import (
    MAX_COUNT,
    MAX_INT,
    Count,
    Integer,
    Positive,
    Sha256,
    Share,
    Size,
    exactly,
    typed,
)


@dataclass(frozen=True)
class Inner:
    count: Count

    def __post_init__(self) -> None:
        if self.count == 13:
            raise ValueError("thirteen brings `bad` luck - at `$.home`")


class Outer(Struct, forbid_unknown_fields=True):
    inner: tuple[Inner, ...] = ()
    positive: Positive = 1
    size: Size = 0
    integer: Integer = 0
    share: Share = 0.5
    digest: Sha256 = ""
    word: Annotated[str, exactly("a.b", "c")] = "c"
    keys: dict[Annotated[str, exactly("k")], Count] = {}


def test_long_values_are_cut() -> None:
    with pytest.raises(ArtifactError) as caught:
        typed({"x" * 10_000: 1}, Outer, "m")
    assert len(caught.value.message) == 200


def test_numbers_fit_into_those_of_engines_and_files() -> None:
    """Engines count in int32; sizes and offsets of files are int64."""
    assert np.iinfo(np.int32).max == MAX_COUNT
    assert np.iinfo(np.int64).max == MAX_INT
    found = typed({"positive": MAX_COUNT, "size": MAX_INT, "integer": -MAX_INT}, Outer, "m")
    assert (found.positive, found.size, found.integer) == (MAX_COUNT, MAX_INT, -MAX_INT)
    assert typed({"share": 1, "word": "a.b", "digest": "0a" * 32}, Outer, "m").share == 1.0


@pytest.mark.parametrize(
    ("value", "where", "message"),
    [
        ([], "m", "expected 'object', got 'array'"),
        ({"inner": [{"count": 0}, {"count": -1}]}, "m: inner[1].count", "expected 'int' >= 0"),
        (
            {"inner": [{"count": MAX_COUNT + 1}]},
            "m: inner[0].count",
            "expected 'int' <= 2147483647",
        ),
        ({"inner": [{"count": True}]}, "m: inner[0].count", "expected 'int', got 'bool'"),
        ({"inner": [{"count": 1.5}]}, "m: inner[0].count", "expected 'int', got 'float'"),
        ({"inner": [{}]}, "m: inner[0]", "object missing required field 'count'"),
        ({"inner": [{"count": 13}]}, "m: inner[0]", "thirteen brings 'bad' luck - at '$.home'"),
        ({"positive": 0}, "m: positive", "expected 'int' >= 1"),
        ({"size": MAX_INT + 1}, "m: size", "expected 'int' <= 9223372036854775807"),
        ({"integer": -(2**70)}, "m: integer", "expected 'int' >= -9223372036854775807"),
        ({"share": 1.01}, "m: share", "expected 'float' <= 1.0"),
        ({"share": None}, "m: share", "expected 'float', got 'null'"),
        ({"digest": "0A" * 32}, "m: digest", "expected text that matches [0-9a-f]{64}"),
        ({"digest": f"{'0a' * 32}\n"}, "m: digest", "expected text that matches [0-9a-f]{64}"),
        ({"word": "aXb"}, "m: word", "expected text that matches (a.b|c)"),
        ({"keys": {"k": -1}}, "m: keys[...]", "expected 'int' >= 0"),
        ({"keys": {"x": 1}}, "m: keys", "expected text that matches (k) as its key"),
        ({"novelty": 1}, "m", "object contains unknown field 'novelty'"),
    ],
)
def test_errors_name_the_place_and_what_is_expected(value: Any, where: str, message: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        typed(value, Outer, "m", "mend it")
    assert (caught.value.message, caught.value.where) == (message, where)
    assert caught.value.hint == "mend it"
