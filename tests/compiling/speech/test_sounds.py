"""Sounds that judge, and sounds that passes learn from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from optc.compiling.speech.sounds import Sounds, shipped_sounds
from optc.runtime.audio.wav import Sound
from tests.runtime.audio.test_wav import riff


def texts(sounds: tuple[Sound, ...]) -> list[bytes]:
    return [one.samples.tobytes() for one in sounds]


def test_no_sound_is_learned_from_and_judged_by(tmp_path: Path) -> None:
    own = Sound(np.ones(8, np.float32), 8000)
    (tmp_path / "a.wav").write_bytes(riff(1, 16, bytes(16), rate=8000))
    every = texts(shipped_sounds())
    both = Sounds.of((), None, learns=True)
    assert sorted(texts(both.judged) + texts(both.learned)) == sorted(every)
    assert len(both.learned) == len(both.judged) == 3
    alone = Sounds.of((), None, learns=False)
    assert texts(alone.judged) == every
    assert not alone.learned
    given = Sounds.of((own,), None, learns=True)
    assert texts(given.judged) == texts((own,))
    assert texts(given.learned) == every
    calibrated = Sounds.of((), tmp_path, learns=True)
    assert texts(calibrated.judged) == every
    assert len(calibrated.learned) == 1
