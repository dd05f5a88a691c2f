"""A GGUF file is a model folder, and imports as transformers loads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnx_ir as ir
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType as Kind

from optc.errors import InputError, UnavailableError, UnsupportedError
from optc.importer.checkpoint import checkpoint_files
from optc.importer.gguf import config as gguf_config
from optc.importer.gguf.config import read_gguf_config, unread_keys
from optc.importer.gguf.file import check_package
from optc.importer.gguf.folder import gguf_folder
from optc.importer.import_model import import_model
from optc.importer.model_folder import model_folder, model_name
from optc.ir.weights import LazyWeight
from tests.importer.decoders import build, config_of, save
from tests.support.checkpoints.gguf_files import of_kind, write_llama

OPTIONS = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
FACTORS = np.linspace(1, 8, 8, dtype=np.float32)


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    return save(build(config_of("Llama", rope_theta=1e4, **OPTIONS)), folder)


def written(source: Path, file: Path, **extra: Any) -> Path:
    config = source / "config.json"
    stated = json.loads(config.read_text())
    config.write_text(json.dumps({**stated, "rope_theta": 1e4}))
    return write_llama(source, file, of_kind(Kind.Q4_0), **extra)


def test_it_imports_as_transformers_loads_it(source: Path, tmp_path: Path) -> None:
    file = written(source, tmp_path / "tiny.gguf", extra={"rope_freqs.weight": FACTORS})
    imported = import_model(file)
    assert (imported.name, imported.family, imported.max_context) == ("tiny", "llama", 128)
    assert imported.warnings == []
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="tiny.gguf", dtype=torch.float32
    ).state_dict()
    labels = set()
    for name, value in imported.model.graph.initializers.items():
        weight = value.const_value
        if isinstance(weight, LazyWeight):
            np.testing.assert_array_equal(weight.numpy(), theirs[name].numpy(), name)
            if weight.given is not None:
                assert weight.given.rows is not None
                count = weight.rows_shape[0]
                np.testing.assert_array_equal(weight.given.rows.floats(0, count), weight.numpy())
                labels.add(weight.given.label)
    assert labels == {"Q4_0", "Q8_0"}
    frequencies = imported.model.graph.initializers["model.rotary_emb.inv_freq"].const_value
    assert isinstance(frequencies, ir.Tensor)
    np.testing.assert_allclose(frequencies.numpy(), 1e4 ** -(np.arange(8) / 8) / FACTORS, rtol=1e-6)


def test_the_folder_is_made_once_for_a_file_as_it_is(source: Path, tmp_path: Path) -> None:
    file = written(source, tmp_path / "tiny.gguf")
    folder = model_folder(file)
    assert model_name(folder) == "tiny"
    assert checkpoint_files(folder) == [folder / "tiny.gguf"]
    assert (folder / "tiny.gguf").resolve() == file.resolve()
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert "bos_token_id" not in config, "the file has no tokenizer"
    stamp = (folder / "config.json").stat().st_mtime_ns
    assert gguf_folder(file) == folder
    assert (folder / "config.json").stat().st_mtime_ns == stamp
    written(source, file, extra={"more": FACTORS})
    assert gguf_folder(file) != folder


def test_what_is_no_gguf_file_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF" + bytes(100))
    before = set(tmp_path.parent.glob("cache/gguf/*/*"))  # of other tests of this worker
    with pytest.raises(InputError, match="not a GGUF file that can be read"):
        import_model(file)
    assert set(tmp_path.parent.glob("cache/gguf/*/*")) <= before


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "clip")
    writer.add_block_count(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(UnsupportedError, match="architecture clip is not supported"):
        gguf_folder(tmp_path / "m.gguf")


def test_rotary_scaling_becomes_that_of_transformers(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(source, tmp_path / "m.gguf")

    def scaling(**stated: Any) -> Any:
        keys = {f"llama.rope.scaling.{key}": value for key, value in stated.items()}
        metadata = {"general.architecture": "llama", "tokenizer.ggml.eot_token_id": 5, **keys}
        return read_gguf_config(file, metadata)

    assert "rope_scaling" not in scaling(type="none")
    assert scaling(type="linear", factor=4.0)["rope_scaling"] == {
        "rope_type": "linear",
        "factor": 4.0,
    }
    yarn = scaling(type="yarn", factor=2.0, original_context_length=64)
    assert yarn["rope_scaling"]["original_max_position_embeddings"] == 64
    assert yarn["eos_token_id"] == 5
    for stated in ({"type": "longrope", "factor": 2.0}, {"type": "linear"}):
        with pytest.raises(UnsupportedError, match="rotary scaling of type"):
            scaling(**stated)
    monkeypatch.setattr(gguf_config, "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", {})
    with pytest.raises(UnsupportedError, match="llama is no decoder-only language model"):
        scaling()


def test_a_llama_with_experts_is_a_mixtral(source: Path, tmp_path: Path) -> None:
    file = written(source, tmp_path / "m.gguf")
    counts = {"general.architecture": "llama", "llama.expert_count": 8}
    with pytest.raises(InputError, match=r"m\.gguf: 8 experts, and none of them is used"):
        read_gguf_config(file, counts)
    counts["llama.expert_used_count"] = 2
    config = read_gguf_config(file, counts)
    assert config["architectures"] == ["MixtralForCausalLM"]
    assert (config["num_local_experts"], config["num_experts_per_tok"]) == (8, 2)
    assert unread_keys(counts) == []


def test_settings_that_nobody_reads_are_named() -> None:
    metadata = {
        "general.architecture": "qwen3moe",
        "qwen3moe.block_count": 2,
        "qwen3moe.rope.scaling.type": "none",
        "qwen3moe.expert_group_scale": 2.0,
        "tokenizer.ggml.model": "gpt2",
    }
    assert unread_keys(metadata) == ["expert_group_scale"]


def test_several_files_are_several_models(source: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        written(source, tmp_path / f"{name}.gguf")
    with pytest.raises(InputError, match="2 GGUF files that are not the parts of one model"):
        checkpoint_files(tmp_path)


def test_the_package_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with pytest.raises(UnavailableError, match=r"need the package gguf.*optc\[gguf\]"):
        check_package()


def test_rotary_factors_of_another_width_are_refused(source: Path, tmp_path: Path) -> None:
    file = written(source, tmp_path / "m.gguf", extra={"rope_freqs.weight": FACTORS[:5]})
    with pytest.raises(InputError, match="5 factors of rotary frequencies, of which the model has"):
        import_model(file)
