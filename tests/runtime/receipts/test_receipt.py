"""Receipts as lines of JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from optc.errors import InputError
from optc.runtime.outputs import Completion, FinishReason, RequestOutput
from optc.runtime.params import SamplingParams
from optc.runtime.receipts.prefix_marks import PrefixMarks
from optc.runtime.receipts.receipt import (
    AnswerReceipt,
    Origin,
    Receipt,
    is_repeatable,
    read_receipt,
)
from optc.runtime.requests.request_metrics import RequestMetrics

PARAMS = SamplingParams(
    temperature=0.7,
    seed=(1 << 64) - 1,
    n=2,
    stop=("a", "b"),
    stop_token_ids=[3],
    logit_bias={5: -math.inf, 6: 1.5},
    json_schema={"type": "object"},
    logprobs=3,
)
RECEIPT = Receipt(
    Origin("ab" * 32, "target", "cd" * 32),
    (1, 2, 3),
    PARAMS,
    (
        AnswerReceipt(0, "stop", PrefixMarks.of([7, 8])),
        AnswerReceipt(1, "length", PrefixMarks.of([9]), "text"),
    ),
    1.5,
    "m",
    "sql",
    "req-1",
)


def line(**changes: Any) -> str:
    return json.dumps({**RECEIPT.to_json(), **changes}, allow_nan=False)


def test_a_receipt_survives_json() -> None:
    found = read_receipt(line(), "log:1")
    assert replace(found, params=PARAMS) == RECEIPT
    given, stated = found.params, PARAMS.stated - {"logprobs"}
    assert given.stated == stated
    assert {n: getattr(given, n) for n in stated} == {n: getattr(PARAMS, n) for n in stated}
    assert given.logprobs is None


def test_no_text_unless_it_is_asked_for() -> None:
    one = Completion(0, "secret", (4,), "stop", None, RequestMetrics(0.0))
    assert AnswerReceipt.of(one).to_json().keys() == {
        *("index", "tokens", "finish_reason", "sha256", "marks")
    }
    assert AnswerReceipt.of(one, with_text=True).to_json()["text"] == "secret"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "log:7: is not JSON"),
        ("[]", "log:7: is no receipt of format 1"),
        (line(receipt=2), "log:7: is no receipt of format 1"),
        (line(answers=[]), "damaged receipt: ValueError('0 answers for n=2')"),
        (line(prompt=["a"]), "damaged receipt: ValueError"),
        (line(prompt=3), "damaged receipt: TypeError"),
        (line(engine=None), "damaged receipt: TypeError('None is no text')"),
        (line(sampling={"warmth": 1}), "damaged receipt: TypeError"),
        (line(sampling={"temperature": -1}), "temperature=-1 is not allowed"),
        (json.dumps({"receipt": 1}), "damaged receipt: KeyError('artifact')"),
    ],
)
def test_what_is_no_receipt(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_receipt(text, "log:7")
    assert message in caught.value.render()


def output(*ends: FinishReason, tokens: tuple[int, ...] = (4,)) -> RequestOutput:
    metrics = RequestMetrics(0.0)
    texts = [Completion(n, "", tokens, end, None, metrics) for n, end in enumerate(ends)]
    return RequestOutput((1,), tuple(texts))


def test_answers_that_time_has_ended_come_not_again() -> None:
    assert is_repeatable(output("stop", "length"))
    assert not any(is_repeatable(output("stop", end)) for end in ("deadline", "cancelled", "error"))
    assert not is_repeatable(output("length", tokens=()))
