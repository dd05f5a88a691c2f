from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optc.artifact.jsonio import MAX_COUNT, Fields, pretty_json, read_json
from optc.errors import ArtifactError


def fields(**values: Any) -> Fields:
    return Fields(values, "m")


def test_json_is_written_and_read_back(tmp_path: Path) -> None:
    value = {"b": [1, 2.5, None], "a": "ä"}
    (tmp_path / "f").write_bytes(pretty_json(value))
    assert read_json(tmp_path / "f") == value
    with pytest.raises(ArtifactError, match="cannot be read: No such file"):
        read_json(tmp_path / "absent")
    with pytest.raises(ArtifactError, match="Is a directory"):
        read_json(tmp_path)


def test_counts_have_a_range() -> None:
    assert fields(n=3).count("n", 1, 3) == 3
    assert fields(n=MAX_COUNT).count("n") == MAX_COUNT
    for wrong in (0, 4, -1):
        with pytest.raises(ArtifactError, match=f"'n' is {wrong}, not within 1 to 3"):
            fields(n=wrong).count("n", 1, 3)
    assert fields(n=[1, 2]).counts("n", 1, 2) == (1, 2)
    with pytest.raises(ArtifactError, match="'n' holds 3, not within 1 to 2"):
        fields(n=[1, 3]).counts("n", 1, 2)
    with pytest.raises(ArtifactError, match="'n' holds bool, not int"):
        fields(n=[True]).counts("n")


def test_numbers_are_finite() -> None:
    assert fields(n=1).number("n") == 1
    assert fields(n=1.5).number("n") == 1.5
    assert fields(n=None).number("n") is None
    for wrong in (True, "1", float("nan"), float("inf"), 2**64):
        with pytest.raises(ArtifactError, match="the key 'n' is"):
            fields(n=wrong).number("n")


def test_texts_and_keys() -> None:
    assert fields(t={"a": "b"}).texts("t") == {"a": "b"}
    with pytest.raises(ArtifactError, match="'a' is not str but int") as caught:
        fields(t={"a": 1}).texts("t")
    assert caught.value.where == "m: t"
    fields(a=None).require("a")
    with pytest.raises(ArtifactError, match="the key 'b' is missing"):
        fields(a=None).require("a", "b")
    with pytest.raises(ArtifactError, match="'k' is 'z', none of x, y"):
        fields(k="z").choice("k", ["x", "y"])
