"""Reads bodies of ``/v1/rerank``, ``/v1/score`` and ``/v1/classify``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optc.runtime.tensors.classifier import Classifier
from optc.runtime.tensors.embedder import Embedder
from optc.runtime.tensors.ranked import best_first
from optc.runtime.tensors.text_classifiers import Reranker, TextClassifier, TokenClassifier
from optc.serve.api_errors import APIError
from optc.serve.asking.read_body import validated
from optc.serve.models import ModelTable
from optc.serve.scoring.bodies import ClassifyBody, RerankBody, ScoreBody
from optc.serve.scoring.shown import classes_of, images_of, parts_of
from optc.serve.tensors.served import ServedTensors

#: Texts of one request.
MOST_TEXTS = 2048
#: Known fields that cannot be followed.
_REFUSED = {
    "rank_fields": "join what is to be read to one text",
    "max_chunks_per_doc": "texts beyond the model's length are cut",
    "max_tokens_per_doc": "texts beyond the model's length are cut",
    "truncate_prompt_tokens": "texts beyond the model's length are cut",
    "mm_processor_kwargs": "images are read as the artifact says",
}
#: What the two sides of pairs are called.
_SIDES = (("text_1", "text_2"), ("queries", "documents"))


@dataclass(frozen=True)
class AskedWork:
    """A body that has been read.

    Attributes:
        model: Who answers.
        work: Computes what the answer has besides its head, and the tokens that were read.
    """

    model: ServedTensors
    work: Callable[[], tuple[dict[str, Any], int]]


def ask_rerank(body: dict[str, Any], models: ModelTable) -> AskedWork:
    """Read the body of ``/v1/rerank``.

    Raises:
        APIError: It is wrong.
    """
    validated(RerankBody, body)
    _check(body)
    model, engine = _ranks(body, models)
    query, top = body["query"], body.get("top_n")
    texts = [one if isinstance(one, str) else one["text"] for one in body["documents"]]
    _check_count(texts, "documents")
    if top is not None and top < 0:
        raise APIError(400, "top_n: give 1 or more; 0 is all", "top_n")
    shows = body.get("return_documents") is not False
    pairs = [(query, text) for text in texts]
    _check_texts(engine, pairs)

    def work() -> tuple[dict[str, Any], int]:
        results = []
        for one in best_first(engine.score(pairs), top or None):
            shown = {"document": {"text": texts[one.index]}} if shows else {}
            results.append({"index": one.index, "relevance_score": one.score, **shown})
        return {"results": results}, _read(engine, pairs)

    return AskedWork(model, work)


def ask_score(body: dict[str, Any], models: ModelTable) -> AskedWork:
    """Read the body of ``/v1/score``.

    Raises:
        APIError: It is wrong.
    """
    validated(ScoreBody, body)
    _check(body)
    model, engine = _ranks(body, models)
    pairs = _pairs(body)
    _check_texts(engine, pairs)

    def work() -> tuple[dict[str, Any], int]:
        data = [
            {"object": "score", "index": index, "score": float(score)}
            for index, score in enumerate(engine.score(pairs))
        ]
        return {"object": "list", "data": data}, _read(engine, pairs)

    return AskedWork(model, work)


def ask_classify(body: dict[str, Any], models: ModelTable) -> AskedWork:
    """Read the body of ``/v1/classify``.

    Raises:
        APIError: It is wrong.
    """
    validated(ClassifyBody, body)
    _check(body)
    model = models.find_tensors(body.get("model"))
    engine = model.engine
    given = [body["input"]] if isinstance(body["input"], str) else body["input"]
    _check_count(given, "input")
    if isinstance(engine, TextClassifier):
        return AskedWork(
            model, lambda: (classes_of(engine.classify, given), _tokens(engine, given))
        )
    if isinstance(engine, TokenClassifier):
        return AskedWork(model, lambda: (parts_of(engine, given), _tokens(engine, given)))
    if isinstance(engine, Classifier):
        return AskedWork(model, lambda: (classes_of(engine.classify, images_of(given)), 0))
    message = f"the model {model.name!r} gives no classes; ask {model.routes}"
    raise APIError(400, message, "model")


def _ranks(
    body: Mapping[str, Any], models: ModelTable
) -> tuple[ServedTensors, Reranker | Embedder]:
    model = models.find_tensors(body.get("model"))
    if isinstance(model.engine, Reranker | Embedder):
        return model, model.engine
    raise APIError(400, f"the model {model.name!r} ranks no texts; ask {model.routes}", "model")


def _pairs(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    names = next(
        (two for two in _SIDES if any(body.get(one) is not None for one in two)), _SIDES[0]
    )
    sides = []
    for name in names:
        if body.get(name) is None:
            raise APIError(400, f"{name} is missing", name)
        sides.append([body[name]] if isinstance(body[name], str) else list(body[name]))
        _check_count(sides[-1], name)
    left, right = sides
    if len(left) == 1:
        left = left * len(right)
    if len(left) != len(right):
        message = f"{names[0]}: {len(left)} texts for {len(right)}: give one, or as many"
        raise APIError(400, message, names[0])
    return list(zip(left, right, strict=True))


def _check(body: Mapping[str, Any]) -> None:
    for name, hint in _REFUSED.items():
        if body.get(name) is not None:
            raise APIError(400, f"{name} is not supported: {hint}", name)


def _check_count(texts: list[str], name: str) -> None:
    if not 1 <= len(texts) <= MOST_TEXTS:
        raise APIError(400, f"{name}: give 1 to {MOST_TEXTS} texts", name)


def _check_texts(engine: Reranker | Embedder, pairs: list[tuple[str, str]]) -> None:
    """An empty text has no vector, as ``/v1/embeddings`` says, too."""
    if isinstance(engine, Embedder) and any("" in pair for pair in pairs):
        raise APIError(400, "a text is empty")


def _read(engine: Reranker | Embedder, pairs: list[tuple[str, str]]) -> int:
    """Tokens that the model reads: an embedder reads each text once, a reranker whole pairs."""
    if isinstance(engine, Reranker):
        return engine.count_tokens(pairs)
    return engine.count_tokens(list(dict.fromkeys(text for pair in pairs for text in pair)))


def _tokens(engine: TextClassifier | TokenClassifier, texts: list[str]) -> int:
    return engine.count_tokens(texts)
