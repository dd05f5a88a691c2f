"""Beams, drafts and structures of transcripts, which a decoder of steps has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import optc
from optc.errors import InputError, RequestError
from tests.compiling.speech.transformers_tokens import written
from tests.compiling.speech.whisper import NO_TIMES, sound

SOUNDS = [sound(seconds, seed) for seed, seconds in enumerate((0.3, 1.0, 1.9, 2.0, 0.7))]
LONG = [sound(seconds, seed) for seed, seconds in ((5, 4.7), (6, 9.3))]


def tokens(transcriber: optc.Transcriber, sounds: list[Any], **how: Any) -> list[list[int]]:
    found = transcriber.transcribe_all(
        sounds, language="en", **{"no_speech_threshold": None, **how}
    )
    return [list(one.tokens) for one in found]


@pytest.mark.parametrize("width", [1, 3])
def test_beams_are_those_of_transformers(folder: Path, artifact: Path, width: int) -> None:
    how = {"language": "en", "task": "transcribe"}
    wanted = written(folder, SOUNDS, **how, num_beams=width)
    with optc.load_transcriber(artifact) as transcriber:
        greedy = tokens(transcriber, SOUNDS)
        assert tokens(transcriber, SOUNDS, beam_width=width) == wanted
        assert [tokens(transcriber, [one], beam_width=width)[0] for one in SOUNDS] == wanted
    assert (wanted == greedy) == (width == 1)


def test_beams_of_transcripts_with_times(folder: Path, artifact: Path) -> None:
    how = {"language": "en", "task": "transcribe", "return_timestamps": True}
    wanted = written(folder, SOUNDS, **how, num_beams=3)
    with optc.load_transcriber(artifact) as transcriber:
        found = tokens(transcriber, SOUNDS, timestamps=True, beam_width=3)
        likely = transcriber.transcribe(SOUNDS[0], language="en", timestamps=True, beam_width=3)
    for ours, theirs in zip(found, wanted, strict=True):
        assert [one for one in ours if one < NO_TIMES] == [one for one in theirs if one < NO_TIMES]
    assert likely.segments


@pytest.mark.parametrize("speculate", ["ngram", "lookahead"])
def test_drafts_change_no_token(artifact: Path, speculate: str) -> None:
    ways: list[dict[str, Any]] = [{}, {"timestamps": True}, {"temperature": 2.0, "seed": 3}]
    sounds = [*SOUNDS, *LONG]
    with optc.load_transcriber(artifact) as transcriber:
        wanted = [tokens(transcriber, sounds, **how) for how in ways]
        unknown = [one.language for one in transcriber.transcribe_all(SOUNDS)]
    with optc.load_transcriber(artifact, speculate=speculate, max_drafted=4) as transcriber:
        assert [tokens(transcriber, sounds, **how) for how in ways] == wanted
        assert [one.language for one in transcriber.transcribe_all(SOUNDS)] == unknown
    assert wanted[0] != wanted[1] != wanted[2]


def test_what_does_not_go_together(artifact: Path, folder: Path) -> None:
    with optc.load_transcriber(artifact) as transcriber:
        for message, how in (
            ("regex: times are no part of a structure's text", {"timestamps": True, "regex": "a"}),
            ("beam_width", {"beam_width": 0}),
            ("beam_width", {"beam_width": 2, "temperature": 0.5}),
            ("beam_width|choice", {"beam_width": 2, "choice": ["a"]}),
            ("choice", {"choice": "a"}),
        ):
            with pytest.raises(RequestError, match=message):
                transcriber.transcribe(SOUNDS[0], **how)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match=r"choice: the sound has 4\.7 seconds, and a"):
            transcriber.transcribe(LONG[0], choice=["w1"])
    with pytest.raises(InputError, match="speculate: nothing drafts by 'draft'"):
        optc.load_transcriber(artifact, speculate="draft")


def test_decoders_of_whole_batches_have_none_of_it(folder: Path, tmp_path: Path) -> None:
    made = optc.compile(
        folder, output=tmp_path / "a", backend="onnxruntime", inputs=SOUNDS[:1], no_gates=True
    )
    with optc.load_transcriber(made.path) as transcriber:
        how: dict[str, Any]
        for how in ({"beam_width": 2}, {"choice": ["w1"]}):
            with pytest.raises(RequestError, match=f"{next(iter(how))}: this decoder writes whole"):
                transcriber.transcribe(SOUNDS[0], **how)
        assert transcriber.transcribe(SOUNDS[0], language="en").tokens
    with pytest.raises(InputError, match="speculate: nothing drafts tokens for a decoder that"):
        optc.load_transcriber(made.path, speculate="ngram")
