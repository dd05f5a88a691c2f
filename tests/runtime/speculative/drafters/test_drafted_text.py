"""One request as a draft model sees it, call by call."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optc.runtime.executable.executable import Int32
from optc.runtime.kv.kv_blocks import BlockTables
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.requests.request_metrics import RequestMetrics
from optc.runtime.sampling.sampler import Mask, Sampled
from optc.runtime.scoring.token_logprobs import TokenLogprobs
from optc.runtime.speculative.drafters.drafted_text import DraftedText

GREEDY = SamplingParams(temperature=0, logprobs=3)


class Grammar:
    """Stands for a constraint; remembers behind which drafts a mask was wanted."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def mask_after(self, drafts: list[int]) -> Mask:
        self.asked.append(drafts)
        return np.full(2, len(drafts), np.uint32)


def target(params: SamplingParams = GREEDY, constraint: object = None) -> Request:
    """A request whose prompt is 10 11 12, with the first output token 13."""
    request = Request(
        5,
        CompletionInput(
            np.array([10, 11, 12], np.int32),
            params,
            seed=8,
            index=2,
            stream=None,
            salt="s",
            constraint=constraint,
        ),
        max_length=20,
        tables=BlockTables.empty(1),
        metrics=RequestMetrics(0.0),
        leader_id=4,
    )
    request.append(13)
    return request


def drawn(token: int, chance: float | None = None) -> Sampled:
    logprobs = None if chance is None else TokenLogprobs(token, math.log(chance), ())
    return Sampled(token, logprobs)


def drafted(request: Request, *drafts: int) -> DraftedText:
    """The text after the prompt and the output were computed and drafts were made."""
    text = DraftedText(request, BlockTables.empty(1))
    text.resume()
    text.wrote(4)
    for draft in drafts:
        text.draft(drawn(draft))
        text.wrote(text.num_tokens)
    return text


def ints(array: Int32) -> list[int]:
    found: list[int] = array.tolist()
    return found


def test_a_new_text_is_the_request_with_nothing_computed() -> None:
    text = DraftedText(target(), BlockTables.empty(1))
    assert (text.id, text.leader_id, text.num_prompt, text.draft_parents) == (5, 4, 3, None)
    assert text.salt == "\0s"
    assert (text.num_tokens, text.num_pending, text.num_drafted) == (0, 0, 0)
    assert (text.written, text.chance) == (0, 1.0)
    text.resume()
    assert ints(text.tokens) == [10, 11, 12, 13]
    assert (text.num_computed, text.num_pending, text.num_drafted) == (0, 4, 0)


def test_drafts_are_behind_the_verified_tokens() -> None:
    text = drafted(target(), 20, 21)
    assert ints(text.tokens) == ints(text.path) == [10, 11, 12, 13, 20, 21]
    assert text.drafts() == [20, 21]
    assert (text.num_tokens, text.num_drafted) == (6, 2)
    assert (text.written, text.num_computed, text.num_pending) == (6, 4, 2)


def test_only_verified_tokens_count_as_computed() -> None:
    text = DraftedText(target(), BlockTables.empty(1))
    text.resume()
    text.wrote(3)
    assert (text.written, text.num_computed, text.num_pending) == (3, 3, 1)
    text.wrote(4)
    text.draft(drawn(20))
    text.wrote(5)
    assert (text.written, text.num_computed) == (5, 4)


def test_confirmed_drafts_stay_computed_up_to_the_first_wrong_one() -> None:
    request = target()
    text = drafted(request, 20, 21, 22)
    for token in (20, 21, 30):
        request.append(token)
    text.resume()
    assert ints(text.tokens) == [10, 11, 12, 13, 20, 21, 30]
    assert (text.num_computed, text.written, text.num_pending) == (6, 6, 1)
    assert text.drafts() == []
    text.draft(drawn(40))
    assert text.drafts() == [40]


def test_nothing_behind_the_first_wrong_draft_stays_computed() -> None:
    request = target()
    text = drafted(request, 20, 21, 22, 23)
    for token in (20, 30, 31, 32):
        request.append(token)
    text.resume()
    assert (text.num_computed, text.written, text.num_pending) == (5, 5, 3)
    assert ints(text.tokens) == [10, 11, 12, 13, 20, 30, 31, 32]


def test_when_all_drafts_hold_the_last_token_is_still_to_be_computed() -> None:
    request = target()
    text = drafted(request, 20, 21)
    for token in (20, 21, 22):
        request.append(token)
    text.resume()
    assert (text.num_computed, text.num_tokens) == (6, 7)


def test_a_draft_that_is_the_last_verified_token_is_computed_again() -> None:
    """Its logits are wanted: those of the step that computed it are gone."""
    request = target()
    text = drafted(request, 20)
    request.append(20)
    text.resume()
    assert (text.num_computed, text.num_pending) == (4, 1)


def test_a_text_without_drafts_goes_on_where_it_was() -> None:
    request = target()
    text = drafted(request)
    request.append(14)
    text.resume()
    assert (text.num_computed, text.written, text.num_pending) == (4, 4, 1)
    text.resume()
    assert (text.num_computed, text.written, text.num_pending) == (4, 4, 1)


def test_blocks_that_were_taken_are_computed_again_from_a_cached_prefix() -> None:
    text = drafted(target(), 20)
    text.resume()
    text.resume_from(2)
    assert (text.num_computed, text.written, text.num_pending) == (2, 2, 2)


@pytest.mark.parametrize(
    ("params", "constraint", "judges"),
    [
        (GREEDY, None, True),
        (SamplingParams(temperature=1.0, logprobs=3), None, False),
        (GREEDY, Grammar(), False),
    ],
)
def test_chances_are_asked_for_where_they_say_how_often_drafts_hold(
    params: SamplingParams, constraint: Grammar | None, judges: bool
) -> None:
    text = drafted(target(params, constraint))
    assert text.row().params.logprobs == (0 if judges else None)


def test_the_chance_is_that_of_all_drafts_together() -> None:
    text = drafted(target())
    assert text.chance == 1.0
    for chance in (0.5, 0.25, None):
        text.draft(drawn(20, chance))
    assert text.chance == pytest.approx(0.125)
    text.resume()
    assert text.chance == 1.0


def test_the_next_token_is_drawn_as_the_target_will() -> None:
    text = drafted(target(), 20, 21)
    row = text.row()
    assert (row.seed, row.completion, row.num_prompt, row.position) == (8, 2, 3, 3)
    assert ints(row.tokens) == [10, 11, 12, 13, 20, 21]
    assert row.mask is None


def test_the_grammar_follows_the_drafts() -> None:
    grammar = Grammar()
    text = drafted(target(GREEDY, grammar), 20, 21)
    mask = text.row().mask
    assert mask is not None
    assert mask.tolist() == [2, 2]
    assert grammar.asked == [[20, 21]]
