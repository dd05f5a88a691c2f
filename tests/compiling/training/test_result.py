"""Results: written whole or not at all, and nothing else is ever replaced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from optc.compiling.training.result import check_output, write_result
from optc.errors import InputError
from optc.importer.additions.trained import read_trained

TENSORS = {"w": np.ones((2, 3), np.float32)}
STATED = {"kind": "distill", "tokens": 7}


def test_a_result_is_replaced_by_another_one(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    for value in (1, 2):
        write_result(folder, {"w": value * TENSORS["w"]}, {}, STATED, None)
    found = read_trained(folder)
    assert found.tensors["w"].read_rows(0, 2).max() == 2
    assert found.stated["tokens"] == 7
    assert [one.name for one in tmp_path.iterdir()] == ["r"]  # no partial one is left


def test_a_place_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_result(tmp_path / "file/r", TENSORS, {}, STATED, None)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_only_results_of_training_are_replaced(tmp_path: Path) -> None:
    check_output(tmp_path / "none", force=False)
    (tmp_path / "empty").mkdir()
    check_output(tmp_path / "empty", force=False)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("")
    for text in ("", "{}", '{"epochs": 3}'):
        (other / "training.json").write_text(text)
        with pytest.raises(InputError, match=r"something already \(take another folder\)"):
            check_output(other, force=True)
    (other / "training.json").unlink()
    with pytest.raises(InputError, match=r"something already \(take another folder\)"):
        check_output(other, force=True)
    write_result(tmp_path / "r", TENSORS, {}, STATED, None)
    check_output(tmp_path / "r", force=True)
    with pytest.raises(InputError, match="or --force"):
        check_output(tmp_path / "r", force=False)
