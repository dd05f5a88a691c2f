"""GGUF files that peers' quantizers read: rows in pairs and back, importances, sizes."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gguf
import numpy as np
import pytest

from benchmarks.inputs.build_random_llama import Shape, build
from benchmarks.peers import gguf_models, ik_llama, to_gguf, variants
from benchmarks.proof.numpy_llama import read_tensors

WORKERS = Path(variants.__file__).parents[1] / "quality_per_byte/weights_alone/workers"
#: Inputs of 384 have blocks of 256 in pairs of rows alone, those of 256 as they are.
SHAPE = Shape(384, 1, 4, 2, 64, 256, vocab=128, context=64, rope_theta=1e4, rope_scaling=None)


@pytest.fixture(scope="module")
def workers() -> Any:
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(WORKERS))
    patch.setenv("IK_LLAMA_TOOLS", "/nowhere")
    yield {name: importlib.import_module(name) for name in ("gguf_files", "ik_llama_formats")}
    for name in ("gguf_files", "ik_llama_formats", "exchange"):
        sys.modules.pop(name, None)
    patch.undo()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("model")
    build(SHAPE, folder)
    to_gguf.write(folder, folder / "BF16.gguf")
    return folder


def test_rows_in_pairs_hold_the_checkpoints_weights(
    workers: dict[str, ModuleType], model: Path, tmp_path: Path
) -> None:
    files = workers["gguf_files"]
    files.write_pairs(model / "BF16.gguf", tmp_path / "pairs.gguf")
    shapes = {t.name: t.shape.tolist() for t in gguf.GGUFReader(tmp_path / "pairs.gguf").tensors}
    assert shapes["blk.0.attn_q.weight"] == [768, 128]
    assert shapes["blk.0.ffn_down.weight"] == [256, 384]
    expected = read_tensors(model)
    found = files.read_weights(model, tmp_path / "pairs.gguf")
    assert found.keys() == expected.keys()
    for name, weights in expected.items():
        np.testing.assert_array_equal(found[name], weights)


def test_bytes_are_those_up_to_the_next_tensor(workers: dict[str, ModuleType], model: Path) -> None:
    stored = workers["gguf_files"].read_stored(model, model / "BF16.gguf")
    name = "model.layers.0.self_attn.q_proj.weight"
    assert stored[name] == [384 * 256, 2 * 384 * 256, "BF16"]
    size = (model / "BF16.gguf").stat().st_size
    assert 0.9 * size < sum(entry[1] for entry in stored.values()) < size


def test_importances_of_pairs_and_of_a_file(
    workers: dict[str, ModuleType], model: Path, tmp_path: Path
) -> None:
    values = {
        "blk.0.attn_q.weight": np.arange(384, dtype=np.float32),
        "blk.0.ffn_down.weight": np.arange(256, dtype=np.float32),
    }
    paired = workers["gguf_files"].paired_importances(model / "BF16.gguf", values)
    workers["ik_llama_formats"].write_importances(tmp_path / "i.dat", paired)
    found = workers["ik_llama_formats"].importances(tmp_path / "i.dat")
    np.testing.assert_array_equal(found["blk.0.attn_q.weight"], [*range(384), *range(384)])
    np.testing.assert_array_equal(found["blk.0.ffn_down.weight"], range(256))


def test_ik_llamas_tools_lie_in_its_environment(tmp_path: Path) -> None:
    tools = gguf_models.ik_llama_tools(ik_llama.tools(tmp_path / "env" / ik_llama.NAME / "bin"))
    source, output = tmp_path / "BF16.gguf", tmp_path / "IQ4_KS.gguf"
    program, *rest = tools.quantize(source, output, "IQ4_KS", tmp_path / "i.dat")
    assert program == str(tmp_path / "env" / ik_llama.NAME / "build/bin/llama-quantize")
    assert rest == ["--imatrix", str(tmp_path / "i.dat"), str(source), str(output), "IQ4_KS"]


def test_a_folder_with_the_source_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(ik_llama, "run", lambda command: ran.append(list(map(str, command))))
    monkeypatch.setenv("IK_LLAMA_SOURCE", str(tmp_path))
    ik_llama.build(tmp_path / "env")
    assert json.dumps(ran).count(str(tmp_path / "gguf-py")) == 1
    assert not any("git" in command[0] for command in ran)
    monkeypatch.delenv("IK_LLAMA_SOURCE")
    (tmp_path / "env").mkdir()
    ik_llama.build(tmp_path / "env")
    assert [ik_llama.URL, ik_llama.REVISION] in [command[-2:] for command in ran]
