"""Lines of a batch: what each asks for, and what is wrong with the file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optc.system.safe_json import JSONError, parse_json

#: Lines of a batch, and those that are named where they are wrong.
MOST_LINES, NAMED = 50_000, 20


@dataclass(frozen=True)
class Line:
    """A request of a batch.

    Attributes:
        number: Of the line, from 1.
        custom_id: Its own name for itself.
        body: Of the request.
    """

    number: int
    custom_id: str
    body: dict[str, Any]


def read_lines(path: Path, endpoint: str) -> Iterator[Line]:
    """The lines of a file that `check_lines` found right."""
    for number, text in _filled(path):
        found = _line(number, text, endpoint)
        assert isinstance(found, Line)
        yield found


def check_lines(path: Path, endpoint: str) -> tuple[int, list[dict[str, Any]]]:
    """The number of lines of a file, and their errors."""
    wrong: list[dict[str, Any]] = []
    seen: set[str] = set()
    count = 0
    for number, text in _filled(path):
        count += 1
        found = _line(number, text, endpoint)
        if isinstance(found, Line) and found.custom_id in seen:
            found = _wrong(number, "duplicate_custom_id", "two lines have the same custom_id")
        if isinstance(found, Line):
            seen.add(found.custom_id)
        elif len(wrong) < NAMED:
            wrong.append(found)
    if not count:
        wrong.append(_wrong(None, "empty_file", "the file has no lines"))
    if count > MOST_LINES:
        message = f"the file has {count} lines; at most {MOST_LINES} are allowed"
        wrong.append(_wrong(None, "too_many_tasks", message))
    return count, wrong


def _filled(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as stream:
        for number, text in enumerate(stream, 1):
            if text.strip():
                yield number, text


def _line(number: int, text: bytes, endpoint: str) -> Line | dict[str, Any]:
    try:
        value = parse_json(text)
    except JSONError as error:
        return _wrong(number, "invalid_json_line", f"the line is no JSON: {error}")
    if not isinstance(value, dict):
        return _wrong(number, "invalid_json_line", "the line is no JSON object")
    custom_id, body = value.get("custom_id"), value.get("body")
    if not isinstance(custom_id, str) or not custom_id:
        return _wrong(number, "missing_custom_id", "the line has no custom_id", "custom_id")
    if value.get("method") != "POST":
        return _wrong(number, "invalid_method", "the method is POST", "method")
    if value.get("url") != endpoint:
        return _wrong(number, "invalid_url", f"the batch is for {endpoint}", "url")
    if not isinstance(body, dict):
        return _wrong(number, "invalid_body", "the line has no body", "body")
    if body.get("stream"):
        return _wrong(number, "invalid_body", "answers in files do not stream", "body.stream")
    return Line(number, custom_id, body)


def _wrong(number: int | None, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    return {"code": code, "message": message[:300], "param": param, "line": number}
