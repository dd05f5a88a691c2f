"""WAV files of every coding, and what is none."""

from __future__ import annotations

import io
import os
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from optc.errors import InputError
from optc.runtime.audio.wav import parse_wav, read_wav

RAMP = np.linspace(-1, 0.99, 200)


def riff(coding: int, bits: int, data: bytes, *, channels: int = 1, rate: int = 8000) -> bytes:
    """A WAV file; its samples are ``data``."""
    width = channels * bits // 8
    form = struct.pack("<HHIIHH", coding, channels, rate, rate * width, width, bits)
    return wrapped(form, data)


def wrapped(form: bytes, data: bytes, size: int | None = None) -> bytes:
    odd = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # a chunk that nobody needs, of odd length
    body = b"WAVE" + odd + b"fmt " + struct.pack("<I", len(form)) + form
    body += b"data" + struct.pack("<I", len(data) if size is None else size) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def test_python_s_own_module_writes_what_is_read(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((2, 2, 22050, 0, "NONE", ""))
        stereo = np.stack([RAMP, np.zeros_like(RAMP)], axis=1)
        file.writeframes((stereo * 32767).astype("<i2").tobytes())
    sound = read_wav(tmp_path / "a.wav")
    assert sound.rate == 22050
    assert sound.seconds == pytest.approx(200 / 22050)
    np.testing.assert_allclose(sound.samples, RAMP / 2, atol=1e-4)


@pytest.mark.parametrize(
    ("coding", "bits", "data", "error"),
    [
        (1, 8, np.round(RAMP * 127 + 128).astype(np.uint8).tobytes(), 2e-2),
        (1, 16, np.round(RAMP * 32767).astype("<i2").tobytes(), 1e-4),
        (1, 32, np.round(RAMP * 2147483647).astype("<i4").tobytes(), 1e-7),
        (3, 32, RAMP.astype("<f4").tobytes(), 1e-7),
        (3, 64, RAMP.astype("<f8").tobytes(), 1e-7),
    ],
)
def test_codings(coding: int, bits: int, data: bytes, error: float) -> None:
    np.testing.assert_allclose(parse_wav(riff(coding, bits, data), "x").samples, RAMP, atol=error)


def test_three_bytes_a_sample_of_the_extensible_form() -> None:
    values = np.array([-(1 << 23), -1, 0, 1, (1 << 23) - 1])
    data = b"".join(struct.pack("<i", int(value))[:3] for value in values)
    form = struct.pack("<HHIIHH", 0xFFFE, 1, 8000, 24000, 3, 24) + struct.pack(
        "<HHIH", 22, 24, 4, 1
    )
    sound = parse_wav(wrapped(form + bytes(14), data), "x")
    np.testing.assert_allclose(sound.samples, values / (1 << 23), atol=1e-9)


def test_laws_of_telephony() -> None:
    """Values of ITU-T G.711's tables, over 16 bits."""
    mu = parse_wav(riff(7, 8, bytes([0xFF, 0x7F, 0x80, 0x00, 0xF0])), "x").samples * 32768
    assert mu.tolist() == [0, 0, 32124, -32124, 120]
    a = parse_wav(riff(6, 8, bytes([0xD5, 0x55, 0xAA, 0x2A, 0x80])), "x").samples * 32768
    assert a.tolist() == [8, -8, 32256, -32256, 5504]


@pytest.mark.parametrize("announced", [0xFFFFFFFF, 0x7FFFF000])
def test_samples_that_end_with_the_file(announced: int) -> None:
    form = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
    sound = parse_wav(wrapped(form, b"\0\1" * 7, announced), "x")
    assert len(sound.samples) == 7


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "x: is no WAV file"),
        (b"ID3\4" + bytes(20), "x: is MP3, and no WAV file"),
        (bytes(4) + b"ftypM4A ", "x: is MP4, and no WAV file"),
        (riff(1, 16, bytes(8))[:-1], "announces 8 bytes of samples and has 7"),
        (riff(1, 16, bytes(8))[:48], "has no samples"),
        (riff(17, 4, bytes(8)), "4 bits in coding 17, which is not known"),
        (riff(1, 16, bytes(8), channels=0), "has no channel"),
        (riff(1, 16, bytes(8), rate=0), "a rate of 0 samples a second"),
        *(
            (
                riff(3, bits, np.array([0, loud], f"<f{bits // 8}").tobytes()),
                r"no numbers up to 1e\+12",
            )
            for bits, loud in ((32, np.nan), (32, np.inf), (64, 1e300), (32, -3e38), (64, 1.1e12))
        ),
        (wrapped(b"ab", b""), "does not say of which form"),
        (b"RIFF\4\0\0\0WAVEdata\0\0\0\0", "has samples before it says"),
    ],
)
def test_what_is_no_sound(data: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_wav(data, "x")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.wav: cannot be read"):
        read_wav(tmp_path / "absent.wav")
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(InputError, match="no regular file"):
        read_wav(tmp_path / "pipe.wav")


def test_every_cut_of_a_file_is_read_or_told() -> None:
    whole = riff(1, 16, bytes(16), channels=2)
    for end in range(len(whole)):
        with pytest.raises(InputError):
            parse_wav(whole[:end], "x")
    assert len(parse_wav(io.BytesIO(whole).read(), "x").samples) == 4
