"""JSON of chunks: ASCII, the same as the standard library reads it."""

from __future__ import annotations

import json

import pytest

from optc.serve.answering.json_bytes import json_bytes


@pytest.mark.parametrize(
    "value",
    [
        {"index": 0, "text": "plain", "logprobs": None, "finish_reason": "stop"},
        {"text": 'ü ü\u2028\u0085\x1c\n\\"', "token_ids": (1, 2), "logprob": -0.1},
        {"text": "half of a pair \ud83d"},
        [{"delta": {"tool_calls": [{"index": 0}]}}],
    ],
)
def test_it_is_read_back(value: object) -> None:
    data = json_bytes(value)
    assert data.isascii()
    assert not any(byte < 0x20 for byte in data)
    assert json.loads(data) == json.loads(json.dumps(value))
