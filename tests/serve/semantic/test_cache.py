"""A semantic cache answers the same client's same question, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the extra 'serve' is not installed")

from starlette.testclient import TestClient

from optc.errors import InputError
from optc.serve.app import make_app
from optc.serve.models import ModelSource, ModelTable
from optc.serve.semantic import cache
from optc.serve.semantic.cache import SemanticCache
from optc.serve.semantic.measured import check_wrong_hits, measured
from optc.serve.semantic.pairs import SHIPPED, Pair
from optc.serve.semantic.words import same_words
from optc.serve.service import Service
from optc.serve.settings import HTTPSettings
from tests.serve.tensors.toys import embedder
from tests.serve.toys import toy_engine


@pytest.fixture
def service() -> Iterator[Service]:
    """Two keys, and a cache whose gate was not asked: the toy encoder knows eight letters."""
    sources = [ModelSource("toy", toy_engine), ModelSource("encoder", embedder)]
    table = ModelTable(sources)
    table.load()
    made = Service(table, HTTPSettings(keys=("sk-a", "sk-b")))
    texts = table.tensors["encoder"].texts
    assert texts is not None
    made.semantic = SemanticCache("encoder", texts, 0.1)
    yield made
    table.close()


def ask(
    service: Service, text: str, key: str = "sk-a", wanted: str = "semantic", **more: Any
) -> tuple[str | None, dict[str, Any]]:
    """What the header says, and the answer."""
    messages = [{"role": "system", "content": more.pop("system", "s")}]
    messages.append({"role": "user", "content": text})
    body = {"model": "toy", "messages": messages, "max_tokens": 4, "temperature": 0, **more}
    headers = {"authorization": f"Bearer {key}", "x-optc-cache": wanted}
    answer = TestClient(make_app(service)).post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.headers.get("x-optc-cache"), {} if "stream" in more else answer.json()


def test_a_question_that_means_the_same_has_the_same_answer(service: Service) -> None:
    first, computed = ask(service, "abc")
    second, known = ask(service, "please abc?")
    assert (first, second) == ("miss", "semantic-hit")
    assert known["choices"] == computed["choices"]
    assert known["id"] != computed["id"]
    assert 0.1 <= known["semantic_cache"]["similarity"] < 1
    usage = known["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"]


def test_another_question_is_computed(service: Service) -> None:
    ask(service, "abc")
    assert ask(service, "acb")[0] == "miss"  # the toy's vectors know no order, words do


def test_the_same_words_that_are_not_near_are_computed(service: Service) -> None:
    assert service.semantic is not None
    service.semantic._threshold = 0.9999
    ask(service, "abc")
    assert ask(service, "please abc?")[0] == "miss"


def test_another_user_never_hits(service: Service) -> None:
    ask(service, "abc")
    assert ask(service, "abc", key="sk-b")[0] == "miss"
    assert ask(service, "abc")[0] == "semantic-hit"


@pytest.mark.parametrize(
    "more",
    [
        {"system": "t"},
        {"cache_salt": "x"},
        {"max_tokens": 5},
        {"seed": 3},
        {"temperature": 0.5},
        {"chat_template_kwargs": {"x": 1}},
    ],
)
def test_all_else_must_be_equal(service: Service, more: dict[str, Any]) -> None:
    ask(service, "abc")
    assert ask(service, "abc", **more)[0] == "miss"


@pytest.mark.parametrize(
    "more",
    [
        {"n": 2, "temperature": 1},
        {"stream": True},
        {"logprobs": True},
        {"response_format": {"type": "json_object"}},
        {"wanted": "no"},
    ],
)
def test_what_needs_its_own_answer_is_not_looked_up(service: Service, more: dict[str, Any]) -> None:
    ask(service, "abc")
    assert ask(service, "abc", **more)[0] is None


def test_other_weights_never_answer(service: Service) -> None:
    ask(service, "abc")
    (model,) = service.models.models.values()
    other = replace(model, origin=replace(model.origin, artifact="another"))
    service.models._models = {"toy": other}
    assert ask(service, "abc")[0] == "miss"


def test_an_encoder_that_takes_other_questions_for_the_same_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pairs = (Pair("How do I a", "How can I a", False), Pair("b", "b", True))
    monkeypatch.setattr(cache, "SHIPPED", pairs)
    table = ModelTable([ModelSource("encoder", embedder)])
    service = Service(table, HTTPSettings(semantic=("encoder", 0.1)))
    with pytest.raises(InputError, match=r"pairs of questions with other answers for the same; 1%"):
        service.load()
    table.close()


def test_a_decoder_is_no_encoder() -> None:
    table = ModelTable([ModelSource("toy", toy_engine)])
    with pytest.raises(InputError, match="'toy' is no encoder"):
        Service(table, HTTPSettings(semantic=("toy", 0.9))).load()
    table.close()


def test_wrong_hits_are_those_of_pairs_with_other_answers() -> None:
    pairs = [Pair("a", "a", True), Pair("c", "c", True), Pair("e", "e", False)]
    pairs.append(Pair("g", "h", False))
    found = np.array([0.95, 0.8, 0.9, 0.99], np.float32)
    low, high = measured(found, pairs, 0.9 - 1e-6), measured(found, pairs, 0.94)
    assert (low.right, low.wrong, low.near, low.wrong_rate) == (1, 1, 2, 0.5)
    assert (high.right, high.wrong, high.same, high.other) == (1, 0, 2, 2)
    check_wrong_hits(high, "x")


def test_pairs_are_of_both_kinds_and_no_pair_comes_twice() -> None:
    assert {one.same for one in SHIPPED} == {True, False}
    assert len({frozenset(one[:2]) for one in SHIPPED}) == len(SHIPPED)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("How do I reset it?", "how can I reset the it", True),
        ("Refunds in the EU", "Refunds in the US", False),
        ("Ask US", "Ask us", False),
        ("from Bern to Basel", "from Basel to Bern", False),
        ("Can dogs eat it?", "Do dogs eat it?", False),
        ("Is -5 odd?", "Is 5 odd?", False),
        ("C++", "C", False),
        ("", "?", False),
    ],
)
def test_words_that_decide_are_compared(first: str, second: str, same: bool) -> None:
    assert same_words(first, second) is same
