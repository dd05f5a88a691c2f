"""Requests to a decoder that attends to an encoder, through the engine that serves all others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from optc.errors import RequestError
from optc.runtime.encoded.attending import Attending
from optc.runtime.engine import Engine
from optc.runtime.executable.encoder_states import EncoderStates
from optc.runtime.executable.executable import Int32, StepBatch
from optc.runtime.handle import Handle
from optc.runtime.params import SamplingParams
from optc.runtime.requests.encoded_request import EncodedRequest
from optc.runtime.requests.ruled import Ruled, TokenRules
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafting import Drafting
from tests.runtime.encoded.toy import SPEC, VOCABULARY, Toy


class Served(Toy):
    """With what beams and the prefix cache need."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[int] = []

    def copy_kv(self, group: int, src_slots: Int32, dst_slots: Int32) -> None:
        self._pools[group][dst_slots] = self._pools[group][src_slots]

    def write_encoded(self, slots: Int32, states: object) -> None:
        super().write_encoded(slots, states)  # type: ignore[arg-type]
        self.written.append(len(slots))


def states(number: int, count: int = 3) -> EncoderStates:
    keys = np.full((count, 1), number, np.float32)
    return EncoderStates(f"{number} {count}", (keys, keys))


def wanted(one: EncoderStates, prompt: list[int], count: int) -> list[int]:
    """Each token is the sum of all before it and of the states."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(one.layers[0].sum() + sum(tokens)) % VOCABULARY)
    return tokens[len(prompt) :]


@pytest.fixture
def toy() -> Served:
    return Served()


@pytest.fixture
def engine(toy: Served) -> Iterator[Engine]:
    with Engine(lambda: Attending(toy), ServeSettings(block_size=16)) as made:  # type: ignore[arg-type]
        yield made


def begin(
    engine: Engine,
    one: EncoderStates,
    prompt: list[int],
    count: int,
    rules: TokenRules | None = None,
    beams: int | None = None,
) -> Handle:
    params = SamplingParams(max_tokens=count, temperature=0, beam_width=beams)
    request = EncodedRequest(prompt, params, salt=one.key, states=one, rules=rules)
    return engine.submit(request)


def test_more_requests_than_places_share_steps(engine: Engine, toy: Served) -> None:
    given = [(states(at, 1 + at % 4), [at, 2][: 1 + at % 2]) for at in range(9)]
    handles = [begin(engine, one, prompt, 6) for one, prompt in given]
    for handle, (one, prompt) in zip(handles, given, strict=True):
        assert list(handle.result().token_ids) == wanted(one, prompt, 6)
    assert max(map(len, toy.steps)) == SPEC.max_sequences


def test_states_are_written_once_while_their_place_is_kept(engine: Engine, toy: Served) -> None:
    first, others = states(1), [states(5), states(6)]
    handles = [begin(engine, first, [one], 4) for one in range(3)]
    assert [list(one.result().token_ids) for one in handles] == [
        wanted(first, [one], 4) for one in range(3)
    ]
    assert toy.written == [3]
    for one in others:
        begin(engine, one, [1], 1).result()
    begin(engine, first, [1], 1).result()
    assert len(toy.written) == 3, "there is a place for each"
    begin(engine, states(7), [1], 1).result()
    assert list(begin(engine, others[1], [1], 3).result().token_ids) == wanted(others[1], [1], 3)
    assert list(begin(engine, others[0], [1], 3).result().token_ids) == wanted(others[0], [1], 3)
    assert len(toy.written) == 5, "the one that was used last was kept, the other was not"


def test_the_same_tokens_with_other_states_are_another_prefix(engine: Engine) -> None:
    prompt = [3] * 8
    for one in (states(1), states(2), states(1)):
        assert list(begin(engine, one, prompt, 3).result().token_ids) == wanted(one, prompt, 3)


def test_drafts_by_ngrams(toy: Served) -> None:
    """States of 0 and tokens of 0 go on with 0, which n-grams find."""
    drafting = Drafting(("ngram",), count=2)
    settings = ServeSettings(block_size=16)
    with Engine(lambda: Attending(toy), settings, drafting=drafting) as engine:  # type: ignore[arg-type]
        one = states(0)
        output = begin(engine, one, [0], 9).result()
        other = begin(engine, states(1), [1], 9).result()
    assert list(output.token_ids) == wanted(one, [0], 9)
    assert list(other.token_ids) == wanted(states(1), [1], 9)
    assert output.metrics.accepted_tokens > 0


class Odd:
    """Only even tokens, and 42 behind three."""

    def after(self, tokens: Sequence[int]) -> Ruled:
        if len(tokens) == 3:
            return Ruled(42)
        return Ruled(None, range(1, VOCABULARY, 2))


def test_rules_of_tokens(engine: Engine) -> None:
    found = begin(engine, states(1), [2], 5, Odd()).result().token_ids
    # the likeliest tokens are 5 and 47, which are odd: 0 is the first of those that are equal
    assert list(found) == [0, 0, 42, 0, 0]


def test_rules_of_beams(engine: Engine) -> None:
    found = begin(engine, states(1), [2], 4, Odd(), beams=2).result()
    assert len(found.completions) == 2
    assert all(token % 2 == 0 for one in found.completions for token in one.token_ids)
    assert all(one.token_ids[2] == 42 for one in found.completions)


def test_beams_attend_to_one_place(engine: Engine, toy: Served) -> None:
    one = states(2)
    best = begin(engine, one, [1], 5, beams=3).result().completions[0]
    assert list(best.token_ids) == wanted(one, [1], 5)
    assert toy.written == [3]


def test_a_request_that_is_too_long_is_refused(engine: Engine) -> None:
    with pytest.raises(RequestError, match="the context holds"):
        begin(engine, states(1), [1] * 20, 1)


def test_a_batch_without_states_runs(toy: Served) -> None:
    """As costs of steps are measured."""
    attending = Attending(toy)  # type: ignore[arg-type]
    assert (attending.spec.encoded, len(attending.spec.groups)) == (0, 1)
    attending.allocate_kv((4,), 16)
    one = np.zeros(1, np.int32)
    batch = StepBatch(
        one, one, one[None], np.array([0, 1], np.int32), one[None] + 1, one[None, None], one
    )
    assert attending.step(batch).shape == (1, VOCABULARY)
