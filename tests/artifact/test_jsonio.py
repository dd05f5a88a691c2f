from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optc.artifact.jsonio import MAX_COUNT, MAX_INT, Fields, pretty_json, read_json
from optc.errors import ArtifactError


def fields(**values: Any) -> Fields:
    return Fields(values, "m")


def test_json_is_written_and_read_back(tmp_path: Path) -> None:
    value = {"b": [1, 2.5, None], "a": "ä"}
    (tmp_path / "f").write_bytes(pretty_json(value))
    assert read_json(tmp_path / "f") == value
    with pytest.raises(ArtifactError, match="cannot be read: No such file"):
        read_json(tmp_path / "absent")
    with pytest.raises(ArtifactError, match="it is no regular file"):
        read_json(tmp_path)


def test_written_json_is_sorted_indented_and_ends_a_line() -> None:
    assert pretty_json({"b": [1], "a": "ä"}) == '{\n  "a": "ä",\n  "b": [\n    1\n  ]\n}\n'.encode()
    with pytest.raises(ValueError, match="Out of range"):
        pretty_json(float("inf"))


def test_only_a_regular_file_with_a_json_object_is_read(tmp_path: Path) -> None:
    """A pipe that nobody writes to must not block a load."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("list")
    (tmp_path / "list").write_text("[]")
    (tmp_path / "text").write_text("{")
    for name, problem in (
        ("pipe", "is no regular file"),
        ("link", "is a symbolic link"),
        ("list", "is not a JSON object"),
        ("text", "is not JSON that can be used: "),
    ):
        with pytest.raises(ArtifactError, match=problem) as caught:
            read_json(tmp_path / name)
        assert caught.value.where == str(tmp_path / name)
        assert ("cp -rL" in caught.value.hint) == (name == "link")


def test_what_is_read_is_not_passed_on_to_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, flags = os.open, []

    def noted(path: Path, how: int) -> int:
        flags.append(how)
        return opened(path, how)

    monkeypatch.setattr(os, "open", noted)
    (tmp_path / "f").write_text("{}")
    assert read_json(tmp_path / "f") == {}
    assert flags[0] & os.O_CLOEXEC


def test_integers_fit_into_those_of_engines_and_files() -> None:
    """Engines count in int32; sizes and offsets of files are int64."""
    assert np.iinfo(np.int32).max == MAX_COUNT
    assert np.iinfo(np.int64).max == MAX_INT
    for value in (MAX_INT, -MAX_INT):
        assert fields(n=value).get("n", int) == value
    for wrong in (MAX_INT + 1, -MAX_INT - 1):
        with pytest.raises(ArtifactError, match="'n' is an integer of more than 64 bits"):
            fields(n=wrong).get("n", int)


def test_counts_begin_at_zero() -> None:
    assert fields(n=0).count("n") == 0
    assert fields(n=[0]).counts("n") == (0,)
    for wrong in (-1, MAX_COUNT + 1):
        with pytest.raises(ArtifactError, match=f"'n' is {wrong}, not within 0 to {MAX_COUNT}"):
            fields(n=wrong).count("n")
        with pytest.raises(ArtifactError, match=f"'n' holds {wrong}, not within 0"):
            fields(n=[wrong]).counts("n")


def test_counts_have_a_range() -> None:
    assert [fields(n=n).count("n", 1, 3) for n in (1, 3)] == [1, 3]
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
    assert fields(k="y").choice("k", ["x", "y"]) == "y"
    with pytest.raises(ArtifactError, match="'k' is 'z', none of x, y"):
        fields(k="z").choice("k", ["x", "y"])
    with pytest.raises(ArtifactError, match=f"'k' is '{'z' * 80}', none of x"):
        fields(k="z" * 1000).choice("k", ["x"])


def test_what_is_not_safe_is_refused_with_its_file(tmp_path: Path) -> None:
    for text, problem in (
        ('{"a": 1, "a": 2}', "an object has the key 'a' twice"),
        ('{"a": NaN}', "it holds NaN"),
        ('{"a": 1e999}', "the number 1e999 is too large"),
        (f'{{"a": {"9" * 5000}}}', "more digits than are read"),
        (f'{{"a": {"[" * 101}{"]" * 101}}}', "nested more than 100 deep"),
    ):
        (tmp_path / "f").write_text(text)
        with pytest.raises(ArtifactError, match=problem) as caught:
            read_json(tmp_path / "f")
        assert caught.value.where == str(tmp_path / "f")
        assert "compile the model again" in caught.value.hint
