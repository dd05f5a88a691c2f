"""Replay on engines that answer alike, and on one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from optc.runtime.engine import Engine
from optc.runtime.params import SamplingParams
from optc.runtime.receipts.receipt import NOWHERE, AnswerReceipt, Receipt
from optc.runtime.receipts.replay import Replayed, replay
from tests.runtime.receipts.toys import PartingExecutable
from tests.serve.toys import SPEC, toy_engine

PROMPTS = [[5, 6, 7], [9] * 20, [30, 31]]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with toy_engine() as found:
        yield found


def receipts(engine: Engine, **changes: Any) -> list[tuple[int, Receipt]]:
    """Of the answers to all prompts, each asked alone."""
    given = {"max_tokens": 12, "seed": 3, "n": 2, "ignore_eos": True, **changes}
    params = SamplingParams(**given)
    found = []
    for line, prompt in enumerate(PROMPTS, 1):
        (output,) = engine.generate([prompt], params)
        answers = tuple(AnswerReceipt.of(one, with_text=True) for one in output.completions)
        found.append((line, Receipt(NOWHERE, tuple(prompt), params, answers)))
    return found


def test_the_same_artifact_gives_the_same_answers(engine: Engine) -> None:
    for changes in ({}, {"temperature": 0, "n": 1}, {"top_k": 5, "logit_bias": {4: 9.0}}):
        found = list(replay(engine, receipts(engine, **changes)))
        assert [one.line for one in found] == [1, 2, 3]
        assert all(one.refusal is None and not one.changes for one in found)


def test_answers_part_where_the_other_artifact_differs(engine: Engine) -> None:
    log = receipts(engine, temperature=0, n=1)
    with toy_engine(lambda: PartingExecutable(SPEC, 22)) as other:
        found: list[Replayed] = list(replay(other, log))
    # The token behind position 22 is the first that may differ: the 23rd of prompt and answer.
    parted = [[change.parted_at for change in one.changes] for one in found]
    assert parted == [[], [23 - len(PROMPTS[1])], []]
    (change,) = found[1].changes
    assert change.before.marks.tokens == change.after.marks.tokens == 12
    shown = change.to_json()
    assert shown["before"]["text"] == log[1][1].answers[0].text != shown["after"]["text"]


def test_an_answer_that_ends_earlier_is_another_one(engine: Engine) -> None:
    (line, one), *_ = receipts(engine, temperature=0, n=1)
    marks = AnswerReceipt.of(engine.generate([PROMPTS[0]], one.params)[0].completions[0])
    short = one.params.changed(max_tokens=7)
    (found,) = replay(engine, [(line, Receipt(NOWHERE, one.prompt, short, (marks,)))])
    assert [change.parted_at for change in found.changes] == [7]
    ended = AnswerReceipt(0, "stop", marks.marks)  # for another reason
    (found,) = replay(engine, [(line, Receipt(NOWHERE, one.prompt, one.params, (ended,)))])
    assert [change.parted_at for change in found.changes] == [12]


@pytest.mark.parametrize("prompt", [(100_000,), tuple([5] * 600)])
def test_requests_that_the_engine_does_not_take(engine: Engine, prompt: tuple[int, ...]) -> None:
    (line, one), other, _ = receipts(engine)
    wrong = Receipt(NOWHERE, prompt, one.params, one.answers)
    refused, fine = replay(engine, [(line, wrong), other])
    assert refused.refusal is not None
    assert (fine.refusal, fine.changes) == (None, ())


def test_leaving_cancels_what_runs(engine: Engine) -> None:
    many = receipts(engine, max_tokens=400, n=1) * 8
    running = replay(engine, many)
    next(running)
    running.close()
    left = engine.submit(PROMPTS[0], SamplingParams(max_tokens=1)).result()
    assert left.output_tokens == 1
    assert engine.metrics().finished["cancelled"] > 0


def test_a_log_is_read_no_farther_than_the_engine_is_kept_busy(engine: Engine) -> None:
    """Four batches ahead of the answer that is waited for: a log may be of any length."""
    line = receipts(engine, n=1, max_tokens=1)[0]
    taken = []

    def log() -> Iterator[tuple[int, Receipt]]:
        for number in range(1, 500):
            taken.append(number)
            yield number, line[1]

    found = replay(engine, log())
    assert next(found).line == 1
    assert len(taken) == 4 * engine.spec.max_sequences + 1
    assert next(found).line == 2
    assert len(taken) == 4 * engine.spec.max_sequences + 2
    found.close()
