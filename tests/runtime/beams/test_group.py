"""A group of beams with a scheduler that only takes note of what it is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optc.runtime.beams.group import BeamGroup
from optc.runtime.executable.executable import Float32
from optc.runtime.kv.kv_blocks import BlockCopy, BlockTables
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.requests.request_metrics import RequestMetrics

END = 7
VOCAB = 8


class Scheduler:
    """Remembers calls; a branch needs one copy, from block ``parent id`` to ``child id``."""

    def __init__(self) -> None:
        self.removed: list[int] = []
        self.branched: list[tuple[int, int, list[int]]] = []

    def remove(self, request: Request) -> None:
        self.removed.append(request.id)

    def branch(self, parent: Request, child: Request) -> list[BlockCopy]:
        self.branched.append((parent.id, child.id, child.output.tolist()))
        return [BlockCopy(0, parent.id, child.id, 1)]


class Stream:
    """Text of tokens: their numbers; a point at the end."""

    def __init__(self) -> None:
        self.text = ""

    def add(self, token: int) -> str:
        return f"{token} "

    def finish(self) -> str:
        return "."


def group(
    width: int = 2, *, stream: bool = False, max_tokens: int = 4, **options: Any
) -> BeamGroup:
    params = SamplingParams(beam_width=width, max_tokens=max_tokens, **options)
    made = BeamGroup(params, frozenset({END}), max_tokens)
    for index in range(width):
        member = Request(
            10 + index,
            CompletionInput(
                np.array([1, 2], np.int32),
                params,
                seed=0,
                index=index,
                stream=Stream() if stream else None,
            ),
            max_length=6,
            tables=BlockTables.empty(1),
            metrics=RequestMetrics(0.0),
            leader_id=10,
        )
        assert made.join(member) == (index == 0)
    return made


def logits(**chances: float) -> Float32:
    """Of tokens ``t3=0.5`` and so on; the others share next to nothing."""
    row = np.full(VOCAB, 1e-9)
    for name, chance in chances.items():
        row[int(name[1:])] = chance
    return np.log(row).astype(np.float32)


def outputs(made: BeamGroup) -> list[list[int]]:
    return [member.output.tolist() for member in made.members]


def first_step(made: BeamGroup, scheduler: Any) -> list[BlockCopy]:
    """The leader branches into tokens 3 and 4."""
    made.offer(made.members[0], logits(t3=0.6, t4=0.4))
    return made.advance(scheduler, 1.0)


def test_the_first_branch_stays_and_the_second_takes_a_free_member() -> None:
    made, scheduler = group(), Scheduler()
    assert made.members[0].room == 0
    assert first_step(made, scheduler) == [BlockCopy(0, 10, 11, 1)]
    assert outputs(made) == [[3], [4]]
    assert scheduler.branched == [(10, 11, [])]
    assert scheduler.removed == []
    assert [member.idle for member in made.members] == [False, False]


def test_beams_wait_for_each_other() -> None:
    made, scheduler = group(), Scheduler()
    first_step(made, scheduler)
    made.offer(made.members[1], logits(t5=1.0))
    assert made.members[1].idle
    assert made.advance(scheduler, 2.0) == []
    assert outputs(made) == [[3], [4]]
    made.offer(made.members[0], logits(t6=1.0))
    assert made.advance(scheduler, 3.0) == []
    assert outputs(made) == [[3, 6], [4, 5]]
    assert [member.idle for member in made.members] == [False, False]
    assert made.advance(scheduler, 4.0) == [], "candidates are used once"
    assert outputs(made) == [[3, 6], [4, 5]]


def test_a_beam_that_ended_gives_its_blocks_back_and_takes_over_a_copy() -> None:
    made, scheduler = group(), Scheduler()
    first_step(made, scheduler)
    made.offer(made.members[0], logits())  # all are equally likely
    made.offer(made.members[1], logits(t5=0.5, t6=0.4))
    assert made.advance(scheduler, 2.0) == [BlockCopy(0, 11, 10, 1)]
    assert scheduler.removed == [10]
    assert scheduler.branched[1:] == [(11, 10, [4])]
    assert outputs(made) == [[4, 6], [4, 5]]


def test_a_group_of_three_takes_members_that_nobody_has() -> None:
    made, scheduler = group(3), Scheduler()
    made.offer(made.members[0], logits(t3=0.5, t4=0.3, t5=0.2))
    made.advance(scheduler, 1.0)
    assert scheduler.branched == [(10, 11, []), (10, 12, [])]
    assert scheduler.removed == [], "members that were no beams hold no blocks"
    assert outputs(made) == [[3], [4], [5]]


def finished() -> tuple[BeamGroup, Scheduler]:
    """Two hypotheses: 3 and the end, and 4 and the end."""
    made, scheduler = group(stream=True, early_stopping=True), Scheduler()
    first_step(made, scheduler)
    made.offer(made.members[0], logits(t7=0.9, t1=0.1))
    made.offer(made.members[1], logits(t7=0.9, t1=0.1))
    assert not made.ended
    assert made.advance(scheduler, 2.5) == []
    assert made.ended
    return made, scheduler


def test_the_best_result_is_the_first_members() -> None:
    made, scheduler = finished()
    for index, token in enumerate((3, 4)):
        member = made.members[index]
        delta = made.result(member, scheduler, None)
        assert (delta.index, delta.token_ids, delta.finish_reason) == (index, (token, END), "stop")
        assert delta.text == f"{token} .", "without the end token"
        assert member.output.tolist() == [token, END]
        chance = (0.6, 0.4)[index] * 0.9
        assert member.cumulative_logprob == pytest.approx(np.log(chance), abs=1e-5)
        assert member.metrics.token_times_s == [1.0, 2.5]
        assert member.error is None
    assert sorted(scheduler.removed) == [10, 11], "once each"


def test_a_search_that_is_over_goes_no_further() -> None:
    made, scheduler = finished()
    for member in made.members:
        made.offer(member, logits(t1=1.0))
    assert made.advance(scheduler, 9.0) == []
    assert outputs(made) == [[3], [4]]


def test_texts_that_reach_their_length_are_shown_whole() -> None:
    made, scheduler = group(1, stream=True), Scheduler()
    for step in range(4):
        made.offer(made.members[0], logits(t3=1.0))
        made.advance(scheduler, float(step))
    delta = made.result(made.members[0], scheduler, None)
    assert (delta.text, delta.finish_reason) == ("3 3 3 3 .", "length")
    assert made.members[0].metrics.token_times_s == [0.0, 1.0, 2.0, 3.0]


def test_a_search_that_others_end_gives_hypotheses_and_then_beams() -> None:
    made, scheduler = group(3), Scheduler()
    made.offer(made.members[0], logits(t7=0.5, t3=0.3, t4=0.1, t5=0.1))
    made.advance(scheduler, 1.0)
    found = [made.result(member, scheduler, "cancelled") for member in made.members]
    assert [delta.token_ids for delta in found] == [(END,), (3,), (4,)]
    assert {delta.finish_reason for delta in found} == {"cancelled"}
    logprobs = [member.cumulative_logprob for member in made.members]
    assert logprobs == pytest.approx(np.log([0.5, 0.3, 0.1]), abs=1e-5)
    assert [delta.text for delta in found] == [""] * 3, "there is no tokenizer"


def test_beams_that_did_not_end_are_shown_whole() -> None:
    made, scheduler = group(2, stream=True), Scheduler()
    first_step(made, scheduler)
    texts = [made.result(member, scheduler, "cancelled").text for member in made.members]
    assert texts == ["3 .", "4 ."]


def test_only_the_end_token_is_not_shown() -> None:
    made, scheduler = group(1, stream=True), Scheduler()
    for token in (3, 4, END):
        made.offer(made.members[0], logits(**{f"t{token}": 1.0}))
        made.advance(scheduler, 1.0)
    assert made.result(made.members[0], scheduler, None).text == "3 4 ."


def test_a_vocabulary_with_fewer_texts_than_beams_leaves_results_empty() -> None:
    made, scheduler = group(3, max_tokens=1), Scheduler()
    made.offer(made.members[0], np.zeros(2, np.float32))
    made.advance(scheduler, 1.0)
    found = [made.result(member, scheduler, None) for member in made.members]
    assert [delta.token_ids for delta in found] == [(0,), (1,), ()]
    assert [delta.finish_reason for delta in found] == ["length"] * 3


def test_a_search_that_never_began_gives_empty_results() -> None:
    made, scheduler = group(2), Scheduler()
    found = [made.result(member, scheduler, "deadline") for member in made.members]
    assert [delta.token_ids for delta in found] == [(), ()]
    assert [member.cumulative_logprob for member in made.members] == [0.0, 0.0]
    assert scheduler.removed == [10]


def test_a_nan_ends_the_search_with_an_error() -> None:
    made, scheduler = group(2), Scheduler()
    first_step(made, scheduler)
    made.offer(made.members[0], np.full(VOCAB, np.nan, np.float32))
    made.offer(made.members[1], logits(t3=1.0))
    assert made.ended
    assert made.advance(scheduler, 2.0) == []
    delta = made.result(made.members[0], scheduler, "cancelled")
    assert delta.finish_reason == "error"
    assert str(made.members[0].error) == (
        "output token 1: the model's logits hold a NaN "
        "(the weights or the engine are broken for this input)"
    )


@pytest.mark.parametrize(
    ("options", "ended"),
    [
        ({}, [True, False]),
        ({"stop_token_ids": [3]}, [True, True]),
        ({"ignore_eos": True, "stop_token_ids": [3]}, [False, True]),
        ({"ignore_eos": True}, [False, False]),
    ],
)
def test_end_tokens_are_the_models_and_the_requests(
    options: dict[str, Any], ended: list[bool]
) -> None:
    found = []
    for token in (END, 3):
        made = group(1, **options)
        made.offer(made.members[0], logits(**{f"t{token}": 1.0}))
        made.advance(Scheduler(), 1.0)  # type: ignore[arg-type]
        found.append(made.ended)
    assert found == ended
