"""Speaks the sentences that models of speech are judged by: optc/runtime/audio/sounds/.

    python -m benchmarks.inputs.build_speech [FOLDER]

Needs espeak-ng. The sounds have 8000 samples a second of µ-law (ITU-T G.711), as a telephone has.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.proof.speech.spoken import Voice, speak
from optc.runtime.audio.resample import resample

_FOLDER = Path("optc/runtime/audio/sounds")
_RATE, _MU_LAW = 8000, 7
_SPOKEN = (
    (Voice("en-us", 150), "The library closes at six, so we have to hurry."),
    (Voice("en-gb", 160), "My sister wants to learn how to play the piano."),
    (Voice("en-us+f3", 145), "There is a small bakery next to the post office."),
    (Voice("en-gb-scotland", 150), "He forgot his umbrella on the bus this morning."),
    (Voice("en-us+m3", 165), "We should water the garden before it gets too hot."),
    (Voice("en-gb+f2", 150), "The doctor told me to rest for a couple of days."),
)


def mu_law(samples: npt.NDArray[np.float32]) -> bytes:
    """One byte for each sample."""
    size = np.minimum(np.abs(samples) * 32768, 32635).astype(np.int64) + 132
    exponent = np.floor(np.log2(size)).astype(np.int64) - 7
    code = np.where(samples < 0, 128, 0) | exponent << 4 | (size >> (exponent + 3)) & 15
    return (~code).astype(np.uint8).tobytes()


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for index, (voice, text) in enumerate(_SPOKEN):
        sound = speak(text, voice)
        data = mu_law(resample(sound.samples, sound.rate, _RATE))
        form = struct.pack("<HHIIHH", _MU_LAW, 1, _RATE, _RATE, 1, 8)
        body = b"WAVEfmt " + struct.pack("<I", len(form)) + form
        body += b"data" + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)
        file = folder / f"sentence-{index}.wav"
        file.write_bytes(b"RIFF" + struct.pack("<I", len(body)) + body)
        file.with_suffix(".txt").write_text(text + "\n", "utf-8")
        print(f"{file}: {sound.seconds:.1f} s, {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
