"""Tutorial 5 and the README's lines, with a real Whisper where one can be had."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.inputs.real_models.fetch import real_model
from optc.compiling.speech.sounds import shipped_sounds
from optc.errors import OptcError
from tests.runtime.audio.test_wav import riff

PAGE = Path(__file__).parents[3] / "docs/tutorial/05-write-down-speech.md"


@pytest.mark.long
def test_five_lines_from_a_whisper_to_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        folder = real_model("whisper-tiny.en")
    except OptcError as error:
        pytest.skip(f"no Whisper can be had here: {error}")
    (tmp_path / "whisper-tiny.en").symlink_to(folder)
    sound = shipped_sounds()[2]
    data = (sound.samples * 32767).astype("<i2").tobytes()
    (tmp_path / "speech.wav").write_bytes(riff(1, 16, data, rate=sound.rate))
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})
    assert "bakery" in capsys.readouterr().out
