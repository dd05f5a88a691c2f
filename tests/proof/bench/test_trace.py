"""Recorded traces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optc.errors import InputError
from optc.proof.bench.trace import read_trace

GOOD: dict[str, Any] = {"arrival_s": 0.5, "prompt_tokens": 3, "output_tokens": 2}


def write(folder: Path, *entries: object) -> Path:
    path = folder / "t.jsonl"
    lines = (e if isinstance(e, str) else json.dumps(e) for e in entries)
    path.write_text("\n".join(lines))
    return path


def test_requests_in_order_of_time(tmp_path: Path) -> None:
    chat = {"arrival_s": 0, "prompt": "hi", "output_tokens": 9, "prefix": 7, "prefix_tokens": 4}
    found = read_trace(write(tmp_path, GOOD, "", chat))
    assert found == [
        {
            "arrival_s": 0.0,
            "prompt_tokens": 0,
            "output_tokens": 9,
            "prefix": "7",
            "prefix_tokens": 4,
            "text": "hi",
        },
        {**GOOD, "prefix": None, "prefix_tokens": None, "text": None},
    ]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a request"),
        ({**GOOD, "tokens": 1}, "is not a request"),
        ({**GOOD, "prompt": "x"}, "needs either prompt or prompt_tokens"),
        ({"arrival_s": 0, "output_tokens": 1}, "needs either prompt or prompt_tokens"),
        ({"arrival_s": 0, "output_tokens": 1, "prompt": ""}, "prompt is no text"),
        ({"arrival_s": 0, "output_tokens": 1, "prompt": 5}, "prompt is no text"),
        ({**GOOD, "arrival_s": -1}, "arrival_s is -1, not seconds"),
        ({**GOOD, "arrival_s": True}, "arrival_s is True, not seconds"),
        ({**GOOD, "arrival_s": "1"}, "arrival_s is '1', not seconds"),
        (
            '{"arrival_s": Infinity, "prompt_tokens": 1, "output_tokens": 1}',
            "is not JSON: it holds Infinity",
        ),
        ({**GOOD, "prompt_tokens": 0}, "prompt_tokens is 0, not a number of tokens"),
        ({**GOOD, "output_tokens": 1.5}, "output_tokens is 1.5, not a number of tokens"),
        ({**GOOD, "output_tokens": True}, "output_tokens is True, not a number of tokens"),
        ({**GOOD, "prefix_tokens": None}, "prefix_tokens is None, not a number of tokens"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, entry: object, problem: str) -> None:
    path = write(tmp_path, GOOD, "", entry)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert caught.value.render().startswith(f"{path}:3: {problem}")


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no requests"):
        read_trace(write(tmp_path, "", " "))
    with pytest.raises(InputError, match="cannot read the trace"):
        read_trace(tmp_path / "absent")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(InputError, match="cannot read the trace"):
        read_trace(tmp_path / "bytes")
