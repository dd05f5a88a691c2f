"""Checkpoints: written whole, found again, and those of other settings refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from optc.compiling.training.checkpoint import Checkpoints
from optc.errors import InputError


def test_the_last_and_the_best_are_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    first = Checkpoints(folder, {"rate": 1})
    assert first.last() is None
    first.save_best({"p": torch.ones(2)}, {"step": 1})
    for step in (1, 2):
        first.save_last({"p": torch.full((2,), float(step))}, {"step": step})
    again = Checkpoints(folder, {"rate": 1})
    last, best = again.last(), again.best()
    assert last is not None
    assert best is not None
    assert (last[0]["p"].tolist(), last[1]) == ([2.0, 2.0], {"step": 2})
    assert (best[0]["p"].tolist(), best[1]) == ([1.0, 1.0], {"step": 1})
    again.remove()
    assert not folder.exists()


def test_a_stop_while_it_is_written_leaves_the_one_before(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c", {})
    kept.save_last({"p": torch.ones(1)}, {"step": 1})
    (tmp_path / "c/last").rename(tmp_path / "c/last.old")  # between the two renames
    (tmp_path / "c/last.new").mkdir()
    found = kept.last()
    assert found is not None
    assert found[1] == {"step": 1}
    kept.save_last({"p": torch.zeros(1)}, {"step": 2})
    found = kept.last()
    assert found is not None
    assert found[1] == {"step": 2}


def test_other_settings_and_damage_are_refused(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c", {"rate": 1})
    with pytest.raises(InputError, match=r"a training with other settings .*delete the folder"):
        Checkpoints(tmp_path / "c", {"rate": 2})
    kept.save_last({"p": torch.ones(1)}, {"step": 1})
    (tmp_path / "c/last/tensors.safetensors").write_bytes(b"xx")
    with pytest.raises(InputError, match="a damaged checkpoint"):
        kept.last()
