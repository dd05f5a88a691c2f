"""Words in the place of tokens."""

from __future__ import annotations

from optc.proof.bench.online.prompts import WORDS, make_askings, sample_text
from optc.proof.bench.workload import Arrival


def words(text: str) -> list[str]:
    found = text.split(" ")
    assert set(found) <= set(WORDS)
    return found


def test_as_many_words_as_give_the_tokens() -> None:
    (one,), shortened = make_askings([Arrival(0.5, 120, 8)], tokens_per_word=1.5)
    assert (one.arrival_s, one.output_tokens, shortened) == (0.5, 8, 0)
    assert len(words(one.prompt)) == 80


def test_the_same_seed_gives_the_same_words() -> None:
    arrivals = [Arrival(0.0, 40, 4), Arrival(1.0, 40, 4)]
    first, again, other = (make_askings(arrivals, seed=seed)[0] for seed in (3, 3, 4))
    assert first == again
    assert first[0].prompt != first[1].prompt
    assert first[0].prompt != other[0].prompt


def test_prompts_of_one_prefix_begin_alike() -> None:
    arrivals = [Arrival(0.0, 40, 4, prefix, 20) for prefix in ("a", "a", "b")]
    same, again, other = (words(one.prompt) for one in make_askings(arrivals, tokens_per_word=2)[0])
    assert same[:10] == again[:10]
    assert same != again
    assert same[:10] != other[:10]


def test_texts_of_a_trace_stay() -> None:
    (one,), _ = make_askings([Arrival(0.0, 0, 4, text="as it was")])
    assert one.prompt == "as it was"


def test_requests_are_shortened_to_the_context() -> None:
    (one,), shortened = make_askings([Arrival(0.0, 100, 30)], max_context=64)
    assert (len(words(one.prompt)), one.output_tokens, shortened) == (34, 30, 1)


def test_the_sample_has_every_word_once() -> None:
    assert len(words(sample_text())) == len(set(WORDS)) == len(WORDS)
