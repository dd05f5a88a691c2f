"""Sounds that judge, and the words that are said in them."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from optc.compiling.speech.sounds import read_sounds, shipped_sounds
from optc.errors import InputError
from optc.proof.gates.speech.measure import _added
from optc.runtime.audio.wav import Sound
from optc.runtime.speech.transcript import Transcript


def test_what_ships_says_its_words() -> None:
    assert all(len(sound.text.split()) > 5 for sound in shipped_sounds())


def test_a_text_beside_a_sound_is_what_is_said(tmp_path: Path) -> None:
    sound = tmp_path / "a.wav"
    shutil.copy(str(files("optc.runtime.audio") / "sounds/sentence-0.wav"), sound)
    assert read_sounds([sound])[0].text == ""
    (tmp_path / "a.txt").write_bytes("\ufeffThe library.\n".encode())
    assert read_sounds([tmp_path])[0].text == "The library."
    (tmp_path / "a.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match="it is not UTF-8"):
        read_sounds([sound])


def _said(text: str) -> Transcript:
    return Transcript(text, None, (), (1,), 1.0)


@pytest.mark.parametrize(
    ("text", "ours", "wanted", "added"),
    [
        ("a b c d", "a b c d", "a b c x", -0.25),
        ("a b c d", "a y c x", "a b c x", 0.25),
        ("a b c d", "a b c x", "a b c x", 0.0),
        ("", "a b c x", "a b c d", 0.25),
    ],
)
def test_wrong_words_beside_what_is_said(text: str, ours: str, wanted: str, added: float) -> None:
    sound = Sound(np.ones(4, np.float32), 4, text)
    assert _added([_said(ours)], [_said(wanted)], [sound]) == pytest.approx(added)
