"""``/v1/embeddings`` gives what the embedder does, to the official client as well."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from tests.serve.clients import openai_client
from tests.serve.conftest import Api, MakeApi
from tests.serve.tensors.toys import WIDTH, embedder
from tests.serve.toys import toy_engine

TEXTS = ["abc", "a", "gh gh"]


def test_vectors_are_the_embedders_in_the_order_of_the_texts(three: Api) -> None:
    found = three.post("/v1/embeddings", model="embedder", input=TEXTS, user="me", made_up=1)
    expected = embedder().embed(TEXTS)
    assert [one["index"] for one in found["data"]] == [0, 1, 2]
    assert [one["embedding"] for one in found["data"]] == expected.tolist()
    assert found["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
    assert (found["object"], found["model"]) == ("list", "embedder")
    assert three.log[-1]["prompt_tokens"] == 9
    assert three.log[-1]["model"] == "embedder"


def test_one_text_and_base64(make_api: MakeApi) -> None:
    body: dict[str, Any] = {"input": "abc", "encoding_format": "base64", "dimensions": WIDTH}
    api = make_api({"toy": toy_engine(), "embedder": embedder()})  # no other takes tensors
    (found,) = api.post("/v1/embeddings", **body)["data"]
    numbers = np.frombuffer(base64.b64decode(found["embedding"]), "<f4")
    np.testing.assert_array_equal(numbers, embedder().embed(["abc"])[0])


def test_tokens_that_are_cut_off_do_not_count(three: Api) -> None:
    found = three.post("/v1/embeddings", model="embedder", input="abcdefgh" * 3)
    assert found["usage"]["prompt_tokens"] == 8


def test_the_official_client(three: Api) -> None:
    client = openai_client(three)
    found = client.embeddings.create(model="embedder", input=TEXTS)
    np.testing.assert_array_equal([one.embedding for one in found.data], embedder().embed(TEXTS))
    assert {one.id for one in client.models.list()} == {"toy", "embedder", "org/adder"}


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"input": []}, "input", "give 1 to 2048 texts"),
        ({"input": ["a"] * 2049}, "input", "give 1 to 2048 texts"),
        ({"input": [1, 2]}, "input", "give texts, not tokens"),
        ({"input": [[1], [2]]}, "input", "give texts, not tokens"),
        ({"input": ["a", ""]}, "input", "a text is empty"),
        ({"input": 3}, "input", "input"),
        ({}, "input", "input is missing"),
        ({"input": "a", "dimensions": 2}, "dimensions", f"gives {WIDTH} numbers"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format", "encoding_format"),
        ({"input": "a", "model": "toy"}, "model", "writes texts; ask /v1/completions"),
        ({"input": "a", "model": "org/adder"}, "model", "embeds no texts; ask /v2/models/org"),
    ],
)
def test_what_cannot_be_embedded(
    three: Api, body: dict[str, Any], param: str, message: str
) -> None:
    error = three.error("/v1/embeddings", **{"model": "embedder", **body})
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert message in error["message"]


def test_a_model_that_is_not_there(three: Api) -> None:
    error = three.error("/v1/embeddings", 404, model="nothing", input="a")
    assert error["code"] == "model_not_found"
    assert "there are: toy, embedder, org/adder" in error["message"]


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
def test_an_embedder_writes_no_text(three: Api, path: str) -> None:
    error = three.error(path, model="embedder", prompt="a")
    assert "writes no text; ask /v1/embeddings or /v2/models/embedder/infer" in error["message"]


def test_a_server_of_decoders_has_no_embedder(make_api: MakeApi) -> None:
    error = make_api().error("/v1/embeddings", input="a", model="toy")
    assert "writes texts" in error["message"]


def test_each_text_is_encoded_once(make_api: MakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    engine = embedder()
    real = engine._tokenizer

    class Counting:
        def encode_batch(self, texts: list[str]) -> Any:
            encoded.extend(texts)
            return real.encode_batch(texts)

    monkeypatch.setattr(engine, "_tokenizer", Counting())
    api = make_api({"toy": engine})
    found = api.post("/v1/embeddings", input=["ab", "c", "ab"])
    assert sorted(encoded) == ["ab", "ab", "c"]
    assert found["usage"]["prompt_tokens"] == 5
