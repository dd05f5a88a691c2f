"""Which files make up a checkpoint, and their digest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from optc.errors import InputError, UnsupportedError
from optc.importer.checkpoint import checkpoint_files, read_checkpoint

INDEX = "model.safetensors.index.json"


def index(folder: Path, *names: str) -> None:
    mapping = {f"w{i}": name for i, name in enumerate(names)}
    (folder / INDEX).write_text(json.dumps({"weight_map": mapping}))


def test_index_wins_over_everything_else(tmp_path: Path) -> None:
    for name in ("b.safetensors", "a.safetensors", "model.safetensors"):
        (tmp_path / name).touch()
    index(tmp_path, "b.safetensors", "a.safetensors", "b.safetensors")
    assert [f.name for f in checkpoint_files(tmp_path)] == ["a.safetensors", "b.safetensors"]


def test_single_file_by_either_name(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").touch()
    assert [f.name for f in checkpoint_files(tmp_path)] == ["weights.safetensors"]
    (tmp_path / "model.safetensors").touch()
    assert [f.name for f in checkpoint_files(tmp_path)] == ["model.safetensors"]


def test_missing_shard_is_named(tmp_path: Path) -> None:
    index(tmp_path, "model-00001-of-00002.safetensors")
    with pytest.raises(InputError, match=r"shard model-00001-of-00002\.safetensors is missing"):
        checkpoint_files(tmp_path)


@pytest.mark.parametrize("name", ["../other.safetensors", "model.bin"])
def test_index_may_only_name_safetensors_of_the_folder(name: str, tmp_path: Path) -> None:
    index(tmp_path, name)
    with pytest.raises(InputError, match="is not a safetensors file of this folder"):
        checkpoint_files(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not readable as JSON"),
        ('{"weight_map":' + "[" * 100_000, "not readable as JSON: it is nested more than"),
        ("[]", "not a JSON object"),
        ('{"weight_map": 3}', "weight_map does not map tensors to files"),
        ('{"weight_map": {"w": 3}}', "weight_map does not map tensors to files"),
        ("{}", "weight_map does not map tensors to files"),
    ],
)
def test_broken_index(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        checkpoint_files(tmp_path)
    assert caught.value.where == str(tmp_path / INDEX)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "last.ckpt"])
def test_pickles_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UnsupportedError, match=f"{name} is a pickle checkpoint.*runs whatever"):
        checkpoint_files(tmp_path)


def test_pickles_beside_safetensors_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").touch()
    (tmp_path / "model.safetensors").touch()
    assert [f.name for f in checkpoint_files(tmp_path)] == ["model.safetensors"]


def test_no_weights_and_too_many(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no weights here.*model\.safetensors"):
        checkpoint_files(tmp_path)
    (tmp_path / "a.safetensors").touch()
    (tmp_path / "b.safetensors").touch()
    with pytest.raises(InputError, match="several safetensors files and no"):
        checkpoint_files(tmp_path)


def test_a_tensor_in_two_files_is_refused(tmp_path: Path) -> None:
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    for file in files:
        save_file({"w": torch.zeros(2)}, file)
    with pytest.raises(InputError, match=r"b\.safetensors: w: also in a\.safetensors"):
        read_checkpoint(files)
