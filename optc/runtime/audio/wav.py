"""Reads WAV files (RIFF; Microsoft and IBM, Multimedia Programming Interface, 1991)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.errors import InputError
from optc.system.foreign.file import read_file

Float32 = npt.NDArray[np.float32]
#: The largest file that is read: 4 GiB is the most that the format can say.
_MOST_BYTES = 1 << 32
#: Rates beyond are no sound's.
RATES = (1, 10_000_000)
#: Floats are -1 to 1; where they are integers as they were, up to 2³¹. Powers of what is louder
#: would not fit float32.
LOUDEST = 1e12
_PCM, _FLOAT, _A_LAW, _MU_LAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
#: Writers into pipes announce such sizes, 2 or 4 GiB: the samples then end with the file.
_OPEN_END = 0x7FFF0000
_CONVERT = "convert it: ffmpeg -i FILE -ar 16000 -ac 1 FILE.wav"
#: First bytes of other files of sound.
_OTHERS = {
    b"fLaC": "FLAC",
    b"OggS": "Ogg",
    b"ID3": "MP3",
    b"\xff\xfb": "MP3",
    b"\xff\xf3": "MP3",
    b"RF64": "RF64",
    b"RIFX": "RIFX",
    b"FORM": "AIFF",
    b"\x1aE\xdf\xa3": "WebM or Matroska",
}


@dataclass(frozen=True)
class Sound:
    """A sound of one channel.

    Attributes:
        samples: f32[n], -1 to 1.
        rate: Samples a second.
        text: The words that are said; empty where nobody knows them.
    """

    samples: Float32
    rate: int
    text: str = ""

    @property
    def seconds(self) -> float:
        """Its length."""
        return len(self.samples) / self.rate


def read_wav(path: Path) -> Sound:
    """The sound in a WAV file: integers of 8, 16, 24 or 32 bits, floats of 32 or 64, A-law or
    µ-law, of any rate. Several channels are averaged.

    Raises:
        InputError: The file cannot be read, is none, is cut short, or has another coding.
    """
    try:
        data = read_file(path, _MOST_BYTES)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    return parse_wav(data, str(path))


def parse_wav(data: bytes, where: str) -> Sound:
    """The sound in the bytes of a WAV file, as `read_wav`; ``where`` is for errors."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        kind = next((name for head, name in _OTHERS.items() if data.startswith(head)), "")
        kind = "MP4" if data[4:8] == b"ftyp" else kind
        what = f"is {kind}, and no WAV file" if kind else "is no WAV file"
        raise InputError(what, where=where, hint=_CONVERT)
    form, coded = _chunks(data, where)
    return _decoded(form, coded, where)


@dataclass(frozen=True)
class _Form:
    """The chunk ``fmt``."""

    coding: int
    channels: int
    rate: int
    bits: int


def _chunks(data: bytes, where: str) -> tuple[_Form, memoryview]:
    """The form of the samples, and the samples."""
    form: _Form | None = None
    at, whole = 12, memoryview(data)
    while at + 8 <= len(data):
        name, size = data[at : at + 4], struct.unpack_from("<I", data, at + 4)[0]
        body = whole[at + 8 : at + 8 + size]
        if name == b"fmt ":
            form = _form(body, where)
        elif name == b"data":
            if form is None:
                raise InputError("has samples before it says of which form", where=where)
            if size >= _OPEN_END:
                body = whole[at + 8 :]
            elif len(body) < size:
                raise InputError(
                    f"is cut short: it announces {size} bytes of samples and has {len(body)}",
                    where=where,
                    hint="copy it again",
                )
            return form, body
        at += 8 + size + size % 2
    raise InputError("has no samples", where=where, hint="copy it again, or record it again")


def _form(body: memoryview, where: str) -> _Form:
    if len(body) < 16:
        raise InputError("does not say of which form its samples are", where=where)
    coding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
    if coding == _EXTENSIBLE and len(body) >= 26:
        coding = struct.unpack_from("<H", body, 24)[0]
    if not channels:
        raise InputError("has no channel", where=where)
    if not RATES[0] <= rate <= RATES[1]:
        raise InputError(f"states a rate of {rate} samples a second", where=where)
    return _Form(coding, channels, rate, bits)


def _decoded(form: _Form, coded: memoryview, where: str) -> Sound:
    size = form.bits // 8
    known = {
        (_PCM, 8): _unsigned,
        (_PCM, 16): _signed,
        (_PCM, 24): _three_bytes,
        (_PCM, 32): _signed,
        (_FLOAT, 32): _float,
        (_FLOAT, 64): _float,
        (_A_LAW, 8): _a_law,
        (_MU_LAW, 8): _mu_law,
    }
    decode = known.get((form.coding, form.bits))
    if decode is None:
        raise InputError(
            f"its samples have {form.bits} bits in coding {form.coding}, which is not known",
            where=where,
            hint=_CONVERT,
        )
    frames = len(coded) // (size * form.channels)
    flat = decode(np.frombuffer(coded, np.uint8, frames * size * form.channels), size)
    samples = flat.reshape(frames, form.channels).mean(axis=1, dtype=np.float64)
    if not (np.abs(samples) <= LOUDEST).all():  # nor are numbers that are not finite
        raise InputError(f"has samples that are no numbers up to {LOUDEST:g}", where=where)
    return Sound(samples.astype(np.float32), form.rate)


Bytes = npt.NDArray[np.uint8]
Samples = npt.NDArray[Any]


def _unsigned(data: Bytes, size: int) -> Samples:
    return (data.astype(np.float32) - 128) / 128


def _signed(data: Bytes, size: int) -> Samples:
    return data.view(f"<i{size}") / np.float64(1 << (8 * size - 1))


def _three_bytes(data: Bytes, size: int) -> Samples:
    wide = np.zeros((len(data) // 3, 4), np.uint8)
    wide[:, 1:] = data.reshape(-1, 3)
    return _signed(wide.reshape(-1), 4)


def _float(data: Bytes, size: int) -> Samples:
    return data.view(f"<f{size}")


def _mu_law(data: Bytes, size: int) -> Samples:
    """ITU-T G.711, µ = 255."""
    code = ~data
    exponent, mantissa = (code >> 4) & 7, (code & 15).astype(np.int32)
    size_of = (((mantissa << 3) + 132) << exponent) - 132
    return np.where(code & 128, -size_of, size_of) / 32768


def _a_law(data: Bytes, size: int) -> Samples:
    """ITU-T G.711, A = 87.6."""
    code = data ^ 0x55
    exponent, mantissa = ((code >> 4) & 7).astype(np.int32), (code & 15).astype(np.int32)
    low = (mantissa << 4) + 8
    size_of = np.where(exponent == 0, low, (low + 256) << np.maximum(exponent - 1, 0))
    return np.where(code & 128, size_of, -size_of) / 32768
