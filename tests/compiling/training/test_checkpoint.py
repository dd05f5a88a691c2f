"""Checkpoints: written whole, found again, and those of other settings refused."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from optc.compiling.training import checkpoint
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


@pytest.mark.parametrize("kept_before", [False, True])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), SafetensorError("I/O error: full")]
)
def test_a_full_disk_is_one_clear_error_and_keeps_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, kept_before: bool
) -> None:
    kept = Checkpoints(tmp_path / "c", {})
    if kept_before:
        kept.save_last({"p": torch.ones(1)}, {"step": 1})

    def full(tensors: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(InputError, match=r"c: cannot be written: .*(No space|full)") as told:
        kept.save_last({"p": torch.zeros(1)}, {"step": 2})
    assert "goes on where the training was" in told.value.hint
    assert not (tmp_path / "c/last.new").exists()
    found = kept.last()
    assert (found is not None) == kept_before
    assert found is None or found[1] == {"step": 1}


def test_nothing_of_others_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "checkpoint-500").mkdir()
    with pytest.raises(InputError, match="no checkpoint of optc: checkpoint-500"):
        Checkpoints(folder, {})
    (folder / "checkpoint-500").rmdir()
    kept = Checkpoints(folder, {})
    kept.save_last({"p": torch.ones(1)}, {"step": 1})
    (folder / "notes.txt").write_text("precious")
    Checkpoints(folder, {}).remove()
    assert [one.name for one in folder.iterdir()] == ["notes.txt"]
