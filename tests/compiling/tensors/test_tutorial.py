"""Tutorial 7's lines for a sentence encoder, with a real one where it can be had."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.inputs.real_models.fetch import real_model
from optc.errors import OptcError

PAGE = Path(__file__).parents[3] / "docs/tutorial/07-any-model.md"


@pytest.mark.long
def test_five_lines_from_an_encoder_to_a_ranking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        folder = real_model("minilm-l6-v2")
    except OptcError as error:
        pytest.skip(f"no MiniLM can be had here: {error}")
    (tmp_path / "minilm").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})
    assert "bakery" in capsys.readouterr().out
