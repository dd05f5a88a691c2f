from __future__ import annotations

import os
from pathlib import Path

import pytest

from optc.artifact.jsonio import pretty_json, read_json
from optc.errors import ArtifactError


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
