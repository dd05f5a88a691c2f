"""A decoder of steps writes what one of whole batches writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from optc.errors import RequestError
from optc.runtime.audio.conventions import Conventions
from optc.runtime.audio.mel import LogMel
from optc.runtime.audio.wav import Sound
from optc.runtime.encoded.attending import Attending
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Float32, Int32
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafting import Drafting
from optc.runtime.speech.step_writer import writer_of
from optc.runtime.speech.transcriber import Transcriber
from optc.runtime.speech.wanted import Wanted
from optc.runtime.text import tokenizer as text
from tests.runtime.encoded.test_attending import Served
from tests.runtime.encoded.toy import spec_of_many

#: Words 0 to 9, the end, the start, languages, a task, silence, no times, and times of 0.02 s.
KNOWN = Conventions(
    features=LogMel(rate=1000, mels=4, window=50, hop=10, seconds=1),
    end=10,
    start=11,
    languages={"en": 12, "de": 13},
    tasks={"transcribe": 14},
    no_speech=15,
    no_timestamps=16,
    suppressed=(3, *range(11, 17)),
    suppressed_first=(4, 10),
    most_tokens=20,
)
SIZE = 17 + 51
SOUNDS = [
    Sound(np.random.default_rng(seed).standard_normal(length).astype(np.float32), 1000)
    for seed, length in enumerate((300, 900, 1000, 2700, 50))
]


def logits(own: npt.NDArray[Any], states: npt.NDArray[Any]) -> Float32:
    """Seeded by the latest two tokens and the states: words repeat now and then."""
    seed = [*(int(one) for one in own[-2:]), int(states.sum())]
    found = 2 * np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)
    found[17:] -= 1
    found[10] += len(own) / 4  # it ends some time
    found[4] += 2 * (len(own) % 3 == 0)
    return found


class Steps(Served):
    spec = spec_of_many(SIZE)

    def logits(self, own: Int32, states: Int32) -> Float32:
        return logits(own, states)


class Hears:
    """An encoder that hears how loud it is."""

    batch_invariant = True

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        loud = np.abs(inputs["input_features"]).sum(axis=(1, 2)).astype(int) % 97
        states = np.repeat(loud.astype(np.float32)[:, None, None, None], 3, axis=2)
        return {"cross_0": states, "cross_1": states}

    def close(self) -> None:
        pass


class Batches:
    """The same decoder over whole batches; its past are the tokens."""

    batch_invariant = True

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        tokens = inputs["input_ids"].astype(np.float32)[:, None, :, None]
        whole = np.concatenate([inputs["past_0"], tokens], axis=2)
        first = whole.shape[2] - tokens.shape[2]
        found = [
            [logits(own[: at + 1], cross) for at in range(first, len(own))]
            for own, cross in zip(
                whole[:, 0, :, 0].astype(int), inputs["cross_0"][:, 0, :, 0], strict=True
            )
        ]
        return {"logits": np.array(found, np.float32), "past_0_out": whole, "past_1_out": whole}

    def close(self) -> None:
        pass


WORDS = Tokenizer(models.WordLevel({f"w{one}": one for one in range(10)}, unk_token="w0"))


def transcriber(decoder: Any, tokenizer: Tokenizer = WORDS) -> Transcriber:
    return Transcriber(Hears(), writer_of(decoder), KNOWN, tokenizer, {"name": "toy"})


def steps(drafting: Drafting | None = None, tokenizer: Tokenizer | None = None) -> Transcriber:
    return transcriber(
        Engine(
            lambda: Attending(Steps()),  # type: ignore[arg-type]
            ServeSettings(block_size=16),
            eos_token_ids=[KNOWN.end],
            drafting=drafting,
            tokenizer=tokenizer and text.Tokenizer(tokenizer),
        ),
        tokenizer or WORDS,
    )


@pytest.fixture(scope="module")
def batches() -> Iterator[Transcriber]:
    with transcriber(Batches()) as made:
        yield made


HOWS: list[dict[str, Any]] = [
    {},
    {"language": "de"},
    {"timestamps": True},
    {"no_speech_threshold": None},
    {"no_speech_threshold": 0.02, "logprob_threshold": -1.5},
    {"batch_size": 1, "language": "en"},
]


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_the_same_transcripts(batches: Transcriber, how: dict[str, Any]) -> None:
    with steps() as made:
        found = made.transcribe_all(SOUNDS, **how)
        assert found == batches.transcribe_all(SOUNDS, **how)
        assert [made.transcribe(one, **how) for one in SOUNDS] == found
    assert len({one.tokens for one in found}) > 2


def test_silence_is_skipped(batches: Transcriber) -> None:
    """The probability of silence, and how likely the transcript is, are both looked at."""
    heard = batches.transcribe_all(SOUNDS, no_speech_threshold=None)
    some = batches.transcribe_all(SOUNDS, **HOWS[4])
    none = batches.transcribe_all(SOUNDS, no_speech_threshold=0.0, logprob_threshold=0.0)
    assert 0 < sum(not one.tokens for one in some) < len(some)
    assert not any(one.tokens for one in none)
    assert all(one.tokens for one in heard)


@pytest.mark.parametrize("kind", ["ngram", "lookahead"])
@pytest.mark.parametrize("how", [HOWS[0], HOWS[2], {"temperature": 1.0, "seed": 5}], ids=str)
def test_drafts_change_no_token(kind: str, how: dict[str, Any]) -> None:
    with steps() as plain, steps(Drafting((kind,), count=3)) as drafts:
        assert drafts.transcribe_all(SOUNDS, **how) == plain.transcribe_all(SOUNDS, **how)


def test_the_likeliest_tokens(batches: Transcriber) -> None:
    with steps() as made:
        for sound in SOUNDS[:3]:
            one = made.transcribe(sound, no_speech_threshold=None)
            likeliest = made.likeliest(sound, one)
            assert likeliest == batches.likeliest(sound, one)
            assert likeliest[: len(one.tokens)] == list(one.tokens)


def test_one_beam_is_greedy_and_more_are_likelier() -> None:
    with steps() as made:
        greedy = made.transcribe_all(SOUNDS, language="en")
        assert made.transcribe_all(SOUNDS, language="en", beam_width=1) == greedy
        assert made.transcribe_all(SOUNDS, language="en", beam_width=4) != greedy
        timed = made.transcribe(SOUNDS[1], language="en", beam_width=4, timestamps=True)
        assert timed.segments
        assert timed.tokens[0] > KNOWN.no_timestamps  # type: ignore[operator]


def test_what_whole_batches_do_not_write(batches: Transcriber) -> None:
    for how in ({"beam_width": 2}, {"choice": ["w1"]}):
        with pytest.raises(RequestError, match="this decoder writes whole batches"):
            batches.transcribe(SOUNDS[0], **how)  # type: ignore[arg-type]


def test_an_error_leaves_nothing_running() -> None:
    with steps() as made:
        with pytest.raises(RequestError, match="tokenizer"):  # a structure needs one
            made.transcribe_all(SOUNDS[:3], language="en", choice=["w1"])
        assert made.transcribe(SOUNDS[0]).tokens


def test_a_space_may_come_before_a_structure() -> None:
    assert list(Wanted(choice=["ab", " c"]).params(5, 0).choice or ()) == ["ab", " ab", " c"]
    assert Wanted(regex="a|b").params(5, 0).regex == " ?(?:a|b)"
    with pytest.raises(RequestError, match="choice"):
        Wanted(choice="ab")


def test_structures() -> None:
    pytest.importorskip("llguidance", reason="the extra for structured output is not installed")
    letters = Tokenizer(models.BPE({one: at for at, one in enumerate("Ġabcdefghi")}, []))
    letters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters.decoder = decoders.ByteLevel()
    letters.add_special_tokens([AddedToken("<end>", special=True)])
    choice = ["ab", "ba e", "gh", "a"]
    with steps(tokenizer=letters) as made:
        found = [made.transcribe(one, choice=choice) for one in SOUNDS[:3]]
        assert {one.text for one in found} <= set(choice)
        for one in SOUNDS[:3]:
            assert re.fullmatch("[ab]{3}e?h", made.transcribe(one, regex="[ab]{3}e?h").text)
            assert made.transcribe(one, grammar='start: "a" ("b" | "i") "e"').text in (
                *("abe", "aie"),
            )
    with pytest.raises(RequestError, match="times are no part of a structure's text"):
        made.transcribe(SOUNDS[0], timestamps=True, regex="a")
    with pytest.raises(RequestError, match=r"choice: the sound has 2\.7 seconds, and a sound"):
        made.transcribe(SOUNDS[3], choice=["a"])
