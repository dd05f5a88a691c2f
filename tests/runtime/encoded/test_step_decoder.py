"""Requests of several callers run together over an engine of steps, each with its own states."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from optc.errors import RequestError
from optc.runtime.encoded.request import Encoded, Float32, run
from optc.runtime.encoded.step_decoder import StepDecoder
from tests.runtime.encoded.toy import SPEC, Sums, Toy


@pytest.fixture
def toy() -> Toy:
    return Toy()


@pytest.fixture
def decoder(toy: Toy) -> Iterator[StepDecoder]:
    made = StepDecoder(lambda: toy)
    yield made
    made.close()


def test_more_requests_than_places(decoder: StepDecoder, toy: Toy) -> None:
    requests = [Sums(one + 1, [one, 2], 1 + one % 4, states=40 - one) for one in range(9)]
    run(decoder, requests)
    assert [one.found for one in requests] == [one.expected for one in requests]
    assert max(map(len, toy.steps)) == SPEC.max_sequences


def test_a_request_begins_as_soon_as_another_ends(decoder: StepDecoder, toy: Toy) -> None:
    long, short = Sums(1, [3], 10), [Sums(2, [one], 1) for one in range(6)]
    run(decoder, [long, *short])
    assert len(toy.steps) <= 11, "the short ones ran beside the long one"
    assert [one.found for one in (long, *short)] == [one.expected for one in (long, *short)]


def test_a_prompt_longer_than_a_step_gives_all_its_logits(decoder: StepDecoder, toy: Toy) -> None:
    whole, last = Sums(1, range(12), 12), Sums(2, range(11), 1, heard=10)
    run(decoder, [whole, last])
    assert whole.found == whole.expected
    assert last.found == last.expected
    assert (whole.first, last.first) == (12, 1)
    assert max(map(sum, toy.steps)) <= SPEC.max_rows


def test_callers_of_several_threads(decoder: StepDecoder) -> None:
    requests = [[Sums(a + b, [a], 5) for b in range(4)] for a in range(5)]
    threads = [threading.Thread(target=run, args=(decoder, some)) for some in requests]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for some in requests:
        assert [one.found for one in some] == [one.expected for one in some]


class Bad(Sums):
    def take(self, logits: Float32) -> Sequence[int]:
        raise ValueError("the caller's own")


def test_an_error_is_its_own_requests(decoder: StepDecoder) -> None:
    good = decoder.session()
    wanted = Sums(1, [1], 6)
    good.submit([wanted])
    with pytest.raises(ValueError, match="the caller's own"):
        run(decoder, [Bad(1, [1], 3)])
    with pytest.raises(RequestError, match="12 tokens at most"):
        run(decoder, [Sums(1, [1], 13)])
    assert good.wait() is wanted
    assert wanted.found == wanted.expected
    run(decoder, [after := Sums(3, [4], 4)])
    assert after.found == after.expected


def test_a_broken_step_ends_those_that_run(decoder: StepDecoder, toy: Toy) -> None:
    toy.broken = True
    with pytest.raises(ValueError, match="the step broke"):
        run(decoder, [Sums(1, [1], 3)])
    toy.broken = False
    run(decoder, [after := Sums(3, [4], 4)])
    assert after.found == after.expected


def test_sizes_are_checked(decoder: StepDecoder) -> None:
    with pytest.raises(RequestError, match="41 states of an encoder, and 40 are the most"):
        run(decoder, [Sums(1, [1], 3, states=41)])
    for count in (0, 13):
        with pytest.raises(RequestError, match=f"there are {count} tokens, and 12 are the most"):
            run(decoder, [Sums(1, [2] * count, 3)])


def test_closing(decoder: StepDecoder, toy: Toy) -> None:
    decoder.close()
    assert toy.closed
    with pytest.raises(RequestError, match="the engine is closed"):
        run(decoder, [Sums(1, [1], 3)])
    decoder.close()


def test_what_a_load_raises() -> None:
    def broken() -> Toy:
        raise ValueError("no engine")

    with pytest.raises(ValueError, match="no engine"):
        StepDecoder(broken)


def test_rows_of_states() -> None:
    keys = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    rows = Encoded({"cross_0": keys, "cross_1": -keys}, 1).rows()
    assert [one.shape for one in rows] == [(4, 15)] * 2
    np.testing.assert_array_equal(rows[0][2], keys[1, :, 2].ravel())
