"""Lines of batches, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optc.serve.batches import lines
from optc.serve.batches.lines import check_lines, read_lines

URL = "/v1/completions"
RIGHT: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": URL, "body": {"prompt": "hi"}}


def write(path: Path, *given: object) -> Path:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in given]
    path.write_text("\n".join(texts))
    return path


def test_lines_have_the_numbers_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "f", RIGHT, "", RIGHT | {"custom_id": "b"})
    assert check_lines(path, URL) == (2, [])
    found = list(read_lines(path, URL))
    assert [(one.number, one.custom_id, one.body) for one in found] == [
        (1, "a", {"prompt": "hi"}),
        (3, "b", {"prompt": "hi"}),
    ]


@pytest.mark.parametrize(
    ("line", "code", "param"),
    [
        ("{", "invalid_json_line", None),
        ("[]", "invalid_json_line", None),
        (RIGHT | {"custom_id": None}, "missing_custom_id", "custom_id"),
        (RIGHT | {"custom_id": 7}, "missing_custom_id", "custom_id"),
        (RIGHT | {"method": "GET"}, "invalid_method", "method"),
        (RIGHT | {"url": "/v1/embeddings"}, "invalid_url", "url"),
        (RIGHT | {"body": "hi"}, "invalid_body", "body"),
        (RIGHT | {"body": {"stream": True}}, "invalid_body", "body.stream"),
        (RIGHT, "duplicate_custom_id", None),
    ],
)
def test_what_is_wrong_with_a_line(tmp_path: Path, line: Any, code: str, param: Any) -> None:
    count, (wrong,) = check_lines(write(tmp_path / "f", RIGHT, line), URL)
    assert (count, wrong["code"], wrong["param"], wrong["line"]) == (2, code, param, 2)


def test_files_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_lines(write(tmp_path / "f", "", " "), URL)[1][0]["code"] == "empty_file"
    monkeypatch.setattr(lines, "MOST_LINES", 1)
    path = write(tmp_path / "f", RIGHT, RIGHT | {"custom_id": "b"})
    assert check_lines(path, URL)[1][0]["code"] == "too_many_tasks"
    many = check_lines(write(tmp_path / "f", *["x"] * 50), URL)[1]
    assert len(many) == lines.NAMED + 1
