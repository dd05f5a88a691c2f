"""``/v1/rerank``, ``/v1/score`` and ``/v1/classify`` give what the engines do."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from optc.serve.app import make_app
from optc.serve.models import ModelSource, ModelTable
from optc.serve.service import Service
from optc.serve.settings import HTTPSettings
from tests.serve.scoring.toys import (
    LABELS,
    image_classifier,
    reranker,
    text_classifier,
    token_classifier,
)
from tests.serve.tensors.toys import adder, embedder
from tests.serve.toys import toy_engine

KEY = {"authorization": "Bearer sk-one"}
ENGINES = {
    "toy": toy_engine,
    "ranks": reranker,
    "embeds": embedder,
    "classes": text_classifier,
    "parts": token_classifier,
    "images": image_classifier,
    "adds": adder,
}
DOCUMENTS = ["a", "hh", "b", "hh"]
RERANK: dict[str, Any] = {"model": "ranks", "query": "a", "documents": ["b"]}


@pytest.fixture(scope="module")
def http() -> Iterator[TestClient]:
    table = ModelTable([ModelSource(name, make) for name, make in ENGINES.items()])  # type: ignore[arg-type]
    table.load()
    with TestClient(make_app(Service(table, HTTPSettings(keys=("sk-one",))))) as client:
        yield client
    table.close()


def ask(http: TestClient, path: str, status: int = 200, **body: Any) -> Any:
    answer = http.post(path, json=body, headers=KEY)
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_texts_in_the_order_of_the_engine(http: TestClient, path: str) -> None:
    found = ask(http, path, model="ranks", query="abc", documents=DOCUMENTS, top_n=3)
    with reranker() as engine:
        expected = engine.rank("abc", DOCUMENTS, top=3)
    assert [(one["index"], one["relevance_score"]) for one in found["results"]] == [
        (one.index, one.score) for one in expected
    ]
    assert [one["index"] for one in found["results"]] == [1, 3, 2]
    assert found["results"][0]["document"] == {"text": "hh"}
    assert found["usage"] == {"prompt_tokens": 4 * 3 + 6, "total_tokens": 18}
    assert (found["model"], found["id"][:7]) == ("ranks", "rerank-")


def test_documents_of_cohere_all_of_them_without_their_texts(http: TestClient) -> None:
    documents = [{"text": one, "title": "t"} for one in DOCUMENTS]
    body: dict[str, Any] = RERANK | {"return_documents": False, "top_n": 0}
    found = ask(http, "/v1/rerank", **body | {"documents": documents})["results"]
    assert [set(one) for one in found] == [{"index", "relevance_score"}] * 4


def test_an_embedder_ranks_by_cosine(http: TestClient) -> None:
    found = ask(http, "/v1/rerank", model="embeds", query="abc", documents=["gh", "abc", "ab"])
    with embedder() as engine:
        query, *vectors = engine.embed(["abc", "gh", "abc", "ab"]).astype(np.float64)
    cosines = [v @ query / np.linalg.norm(v) / np.linalg.norm(query) for v in vectors]
    assert [one["index"] for one in found["results"]] == np.argsort(cosines)[::-1].tolist()
    scores = {one["index"]: one["relevance_score"] for one in found["results"]}
    assert [scores[index] for index in range(3)] == pytest.approx(cosines)
    assert found["usage"]["prompt_tokens"] == 3 + 2 + 2  # the query stands among the texts


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents")])
def test_scores_of_pairs(http: TestClient, path: str, names: tuple[str, str]) -> None:
    left, right = names
    with reranker() as engine:
        expected = engine.score([("a", "b"), ("a", "c")]).tolist()
    for given in ("a", ["a"], ["a", "a"]):
        body: dict[str, Any] = {left: given, right: ["b", "c"]}
        found = ask(http, path, model="ranks", **body)
        assert found["data"] == [
            {"object": "score", "index": index, "score": score}
            for index, score in enumerate(expected)
        ]
    assert expected == pytest.approx([0.3, 0.4])


@pytest.mark.parametrize("path", ["/v1/classify", "/classify"])
def test_classes_of_texts(http: TestClient, path: str) -> None:
    found = ask(http, path, model="classes", input=["a", "b", "c"])
    assert [one["label"] for one in found["data"]] == ["yes", "maybe", "no"]
    with text_classifier() as engine:
        (expected,) = engine.classify(["a"], top=9)
    first = found["data"][0]
    assert first["num_classes"] == 3
    by_label = dict(zip(LABELS, first["probs"], strict=True))
    assert by_label == {one.label: one.score for one in expected}
    assert found["usage"]["prompt_tokens"] == 3
    assert ask(http, path, model="classes", input="a")["data"] == [first]


def test_labelled_parts_of_texts(http: TestClient) -> None:
    (found,) = ask(http, "/v1/classify", model="parts", input="dabdc")["data"]
    shown = [(one["label"], one["text"], one["start"], one["end"]) for one in found["parts"]]
    assert shown == [("PER", "ab", 1, 3), ("LOC", "c", 4, 5)]
    assert all(one["score"] > 0.9 for one in found["parts"])


def data_url(image: Any, form: str = "PNG") -> str:
    stream = BytesIO()
    image.save(stream, form)
    return f"data:image/{form.lower()};base64,{base64.b64encode(stream.getvalue()).decode()}"


def test_classes_of_images(http: TestClient) -> None:
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    urls = [data_url(images.new("RGB", (5, 3), colour)) for colour in ("#0000ff", "#00ff00")]
    found = ask(http, "/v1/classify", model="images", input=urls)
    assert [one["label"] for one in found["data"]] == ["blue", "green"]
    for wrong, message in (
        ("http://127.0.0.1/cat.png", "input.0: give images as data URLs"),
        ("data:image/png;base64,!!!!", "input.0: no base64"),
        ("data:image/png;base64,aGk=", "input.0: is no image"),
        (data_url(images.new("1", (9000, 9000))), "input.0: has 9000 by 9000 pixels"),
    ):
        error = ask(http, "/v1/classify", 400, model="images", input=wrong)["error"]
        assert message in error["message"]
    one = data_url(images.new("1", (9000, 4000)))  # a few kilobytes that become many pixels
    error = ask(http, "/v1/classify", 400, model="images", input=[one, one])["error"]
    assert "input.1: has 9000 by 4000 pixels, and 31108864 are left" in error["message"]


def test_an_image_that_is_a_bomb_is_refused(
    http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    url = data_url(images.new("RGB", (50, 50)))
    monkeypatch.setattr(images, "MAX_IMAGE_PIXELS", 100)
    error = ask(http, "/v1/classify", 400, model="images", input=url)["error"]
    assert "exceeds limit" in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        ("/v1/rerank", RERANK | {"documents": []}, "documents", "give 1 to 2048 texts"),
        ("/v1/rerank", RERANK | {"documents": ["a"] * 2049}, "documents", "give 1 to 2048"),
        ("/v1/rerank", RERANK | {"documents": [{"title": "x"}]}, None, "documents"),
        ("/v1/rerank", RERANK | {"top_n": -1}, "top_n", "1 or more"),
        ("/v1/rerank", RERANK | {"rank_fields": ["a"]}, "rank_fields", "is not supported"),
        ("/v1/rerank", {"model": "ranks", "documents": ["b"]}, "query", "is missing"),
        ("/v1/rerank", RERANK | {"model": "toy"}, "model", "writes texts"),
        ("/v1/rerank", RERANK | {"model": "classes"}, "model", "ask /v1/classify or"),
        ("/v1/rerank", RERANK | {"model": "adds"}, "model", "ask /v2/models/adds/infer"),
        ("/v1/rerank", RERANK | {"model": None}, "model", "name a model"),
        ("/v1/rerank", RERANK | {"model": "embeds", "documents": ["a", ""]}, None, "is empty"),
        ("/v1/score", {"model": "embeds", "text_1": "", "text_2": "a"}, None, "is empty"),
        ("/v1/score", {"model": "ranks", "text_1": "a"}, "text_2", "text_2 is missing"),
        ("/v1/score", {"model": "ranks"}, "text_1", "text_1 is missing"),
        ("/v1/score", {"model": "ranks", "documents": "a"}, "queries", "queries is missing"),
        (
            "/v1/score",
            {"model": "ranks", "text_1": ["a", "b"], "text_2": ["a", "b", "c"]},
            "text_1",
            "2 texts for 3",
        ),
        ("/v1/classify", {"model": "ranks", "input": "a"}, "model", "ask /v1/rerank or"),
        ("/v1/classify", {"model": "classes", "input": []}, "input", "give 1 to 2048"),
        ("/v1/embeddings", {"model": "ranks", "input": "a"}, "model", "ask /v1/rerank or"),
    ],
)
def test_what_is_wrong_is_said(
    http: TestClient, path: str, body: dict[str, Any], param: str | None, message: str
) -> None:
    error = ask(http, path, 400, **body)["error"]
    assert message in error["message"]
    if param is not None:
        assert error["param"] == param


def test_keys_are_needed_and_calls_are_counted(http: TestClient) -> None:
    for path in ("/v1/rerank", "/score", "/classify"):
        assert http.post(path, json=RERANK).status_code == 401
    ask(http, "/v1/rerank", **RERANK)
    text = http.get("/metrics", headers=KEY).text
    assert 'http_requests_total{method="POST",route="/v1/rerank",status="200"}' in text
    assert 'http_requests_total{method="POST",route="other",status="401"} 3.0' in text
    assert 'tensor_call_seconds_count{engine="0",model_name="ranks"}' in text
