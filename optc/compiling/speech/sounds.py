"""Sounds to judge a model of speech by: the user's, or sentences that ship with optc."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.runtime.audio.wav import Sound, parse_wav, read_wav
from optc.system.foreign.file import is_file
from optc.system.options.user_text import read_user_text

#: Of the sounds that ship, every other one calibrates where passes learn from sounds.
_STEP = 2


@dataclass(frozen=True)
class Sounds:
    """Sounds to judge by, and other ones that passes learn from."""

    judged: tuple[Sound, ...]
    learned: tuple[Sound, ...]

    @classmethod
    def of(cls, given: Sequence[Any], calibration: Path | None, *, learns: bool) -> Sounds:
        """Divide sounds.

        Args:
            given: The user's to judge by; none are those that ship.
            calibration: The user's to learn from: a WAV file or a folder of them; None are some of
                those that ship.
            learns: Passes of the recipe do.

        Raises:
            InputError: As `read_sounds`.
        """
        judged, shipped = read_sounds(given), shipped_sounds()
        learned = read_sounds([calibration] if calibration is not None else [])
        if not learns:
            return cls(judged or shipped, ())
        if judged or learned:
            return cls(judged or shipped, learned or shipped)
        return cls(shipped[1::_STEP], shipped[::_STEP])


def read_sounds(given: Sequence[Any]) -> tuple[Sound, ...]:
    """The user's sounds: WAV files, folders of them, or `Sound`. A file of text of the same name,
    such as ``speech.txt`` beside ``speech.wav``, holds the words that are said.

    Raises:
        InputError: A file is none, a folder has none, or a sound is empty.
    """
    found: list[Sound] = []
    for one in given:
        if isinstance(one, Sound):
            found.append(one)
            continue
        if not isinstance(one, str | Path):
            raise InputError(
                f"a model of speech is judged by sounds, not by {type(one).__name__}",
                where="inputs",
                hint="WAV files, folders of them, or optc.Sound(samples, rate)",
            )
        found += [_with_text(read_wav(file), file) for file in _files(Path(one))]
    if any(not len(sound.samples) for sound in found):
        raise InputError("one has no samples", where="inputs")
    return tuple(found)


def shipped_sounds() -> tuple[Sound, ...]:
    """Sentences that a synthesizer spoke (`benchmarks.inputs.build_speech`)."""
    with as_file(files("optc.runtime.audio") / "sounds") as folder:
        return tuple(
            _with_text(parse_wav(file.read_bytes(), file.name), file) for file in _files(folder)
        )


def _with_text(sound: Sound, file: Path) -> Sound:
    beside = file.with_suffix(".txt")
    return replace(sound, text=read_user_text(beside).strip()) if is_file(beside) else sound


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.iterdir() if one.suffix.lower() == ".wav")
    if not found:
        raise InputError("has no .wav file", where=str(path))
    return found
