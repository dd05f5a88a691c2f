"""/tokenize and /detokenize."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.conftest import Api


def test_there_and_back(api: Api) -> None:
    for text in ("hi", "naïve 🙂", "a</s>b"):
        found = api.post("/tokenize", prompt=text, return_token_strs=True)
        assert found["count"] == len(found["tokens"]) == len(text.encode())
        assert found["max_model_len"] == api.engine.max_context
        assert api.post("/detokenize", tokens=found["tokens"])["prompt"] == text
        assert len(found["token_strs"]) == found["count"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
        ("/tokenize", {"prompt": 1}, "prompt"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [1 << 70]}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens.0"),
    ],
)
def test_wrong_bodies(api: Api, path: str, body: dict[str, Any], param: str) -> None:
    assert api.error(path, **body)["param"] == param
