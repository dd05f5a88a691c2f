"""The comparison of exported folders with transformers."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.families.exported import difference, main
from optc.errors import UnsupportedError


def test_logits_are_equal(tmp_path: Path) -> None:
    assert difference("llama", tmp_path) == 0


def test_columns_of_experts_in_one_matrix_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="by expert, and in the class as one matrix"):
        difference("dbrx", tmp_path)


def test_a_refusal_is_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="alpha_p"):
        difference("apertus", tmp_path)
    main(["apertus"])
    first, last = capsys.readouterr().out.splitlines()[-2:]
    assert first.startswith("apertus: refused: ")
    assert last == "0 of 1 are equal to the bit"
