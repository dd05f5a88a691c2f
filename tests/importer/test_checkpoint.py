"""Which files make up a checkpoint, and their digest."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers.modeling_utils import _get_resolved_checkpoint_files

from optc.errors import InputError, UnsupportedError
from optc.importer.checkpoint import checkpoint_files, read_checkpoint, weights_left_out

INDEX = "model.safetensors.index.json"
PICKLED_INDEX = "pytorch_model.bin.index.json"


def index(folder: Path, *names: str, to: str = INDEX) -> None:
    mapping = {f"w{i}": name for i, name in enumerate(names)}
    (folder / to).write_text(json.dumps({"metadata": {}, "weight_map": mapping}))


#: What may lie in one folder: files, and the names that an index gives.
SETS: dict[str, tuple[str, ...]] = {
    "single": ("model.safetensors",),
    "shards": ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
    "named": ("other.safetensors",),
    "pickle": ("pytorch_model.bin",),
    "pickled shards": ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"),
    "gguf": ("model-Q4.gguf",),
    "mistral": ("consolidated.safetensors",),
    "training": ("optimizer.pt", "training_args.bin", "rng_state_0.pth"),
}
FOLDERS = [
    sets
    for count in range(1, len(SETS) + 1)
    for sets in itertools.combinations(SETS, count)
    if {"single", "shards", "named", "pickle", "pickled shards"} & set(sets)
]


def made(folder: Path, sets: tuple[str, ...]) -> None:
    config = {"model_type": "llama"}
    for name in sets:
        for file in SETS[name]:
            (folder / file).touch()
    for shards, name in (("shards", INDEX), ("pickled shards", PICKLED_INDEX)):
        if shards in sets:
            index(folder, *SETS[shards], to=name)
    if "named" in sets:
        config["transformers_weights"] = SETS["named"][0]
    (folder / "config.json").write_text(json.dumps(config))


def transformers_files(folder: Path) -> list[str]:
    explicit = json.loads((folder / "config.json").read_text()).get("transformers_weights")
    found, _ = _get_resolved_checkpoint_files(
        str(folder), None, None, None, None, False, explicit, {}
    )
    assert found is not None
    return [Path(file).name for file in found]


def test_transformers_choice_of_files(tmp_path: Path) -> None:
    for number, sets in enumerate(FOLDERS):
        folder = tmp_path / str(number)
        folder.mkdir()
        made(folder, sets)
        files = checkpoint_files(folder)
        assert [file.name for file in files] == transformers_files(folder), sets
        others = set(sets) - {"training"} - {s for s in sets if SETS[s][0] == files[0].name}
        want = {file for name in others for file in SETS[name]}
        want |= {INDEX} if "shards" in others else set()
        want |= {PICKLED_INDEX} if "pickled shards" in others else set()
        assert set(weights_left_out(folder, files)) == want, sets


def test_an_index_of_the_files_that_are_read_is_no_other_set(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    index(tmp_path, "model.safetensors")
    files = checkpoint_files(tmp_path)
    assert weights_left_out(tmp_path, files) == []
    (tmp_path / INDEX).write_text("no index")
    assert weights_left_out(tmp_path, files) == [INDEX]


def test_an_index_that_the_config_names(tmp_path: Path) -> None:
    made(tmp_path, ("single", "shards"))
    (tmp_path / INDEX).rename(tmp_path / "v2.safetensors.index.json")
    config = {"transformers_weights": "v2.safetensors.index.json"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert [f.name for f in checkpoint_files(tmp_path)] == list(SETS["shards"])


@pytest.mark.parametrize("name", ["../w.safetensors", "w.bin", 3])
def test_the_config_may_only_name_safetensors_of_the_folder(name: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"transformers_weights": name}))
    with pytest.raises(InputError, match="is not a safetensors file of this folder") as caught:
        checkpoint_files(tmp_path)
    assert caught.value.where == f"{tmp_path / 'config.json'}: transformers_weights"


def test_single_file_by_either_name(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").touch()
    assert [f.name for f in checkpoint_files(tmp_path)] == ["weights.safetensors"]
    (tmp_path / "model.safetensors").touch()
    assert [f.name for f in checkpoint_files(tmp_path)] == ["model.safetensors"]


def test_missing_shard_is_named(tmp_path: Path) -> None:
    index(tmp_path, "model-00001-of-00002.safetensors")
    with pytest.raises(InputError, match=r"shard model-00001-of-00002\.safetensors is missing"):
        checkpoint_files(tmp_path)


def test_an_index_may_say_that_its_folder_is_meant(tmp_path: Path) -> None:
    index(tmp_path, *(f"./{name}" for name in SETS["shards"]))
    for name in SETS["shards"]:
        (tmp_path / name).touch()
    assert [f.name for f in checkpoint_files(tmp_path)] == list(SETS["shards"])


@pytest.mark.parametrize(
    "name", ["../other.safetensors", "model.bin", "././w.safetensors", "./../w.safetensors"]
)
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


@pytest.mark.parametrize("name", ["model.bin", "model.pt", "model.pth", "last.ckpt"])
def test_pickles_of_other_names_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UnsupportedError, match=f"PyTorch under another name .*: {name} "):
        checkpoint_files(tmp_path)


@pytest.mark.parametrize("name", ["../other.bin", "model.safetensors"])
def test_an_index_of_pickles_names_pickles_of_the_folder(name: str, tmp_path: Path) -> None:
    index(tmp_path, name, to=PICKLED_INDEX)
    with pytest.raises(InputError, match="is not a PyTorch file of this folder"):
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
