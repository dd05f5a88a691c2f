"""Experts in exported files are those of the class, named and stacked as readers have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf.quants import dequantize
from safetensors import safe_open

from optc import registry
from optc.compiling.export.experts import check_experts
from optc.compiling.export.export import export_artifact
from optc.compiling.export.gguf.settings import add_settings
from optc.errors import UnsupportedError
from optc.importer.checkpoint import checkpoint_files, read_tensors
from optc.importer.config import read_config
from optc.importer.conversion.checkpoint import Conversion, convert_checkpoint
from optc.importer.gguf.config import read_gguf_config
from optc.importer.gguf.file import metadata_of, open_gguf
from optc.passes.numerics.scheme import Scheme
from tests.compiling.export.conftest import Made
from tests.compiling.export.engines import (
    CANONICALIZE,
    VOCABULARY,
    GivingBackend,
    weights_of_class,
    write_giving,
)
from tests.compiling.export.readers import imported_class
from tests.importer.decoders import build, config_of, reference, tokens

EXPERTS, USED = 4, 2
SIZES = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_experts_per_tok": USED}
#: 768 is the width of experts that transformers takes for granted in GGUF files.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_moe": (
        "Qwen3Moe",
        {"head_dim": 32, "moe_intermediate_size": 768, "norm_topk_prob": True},
    ),
    "mixtral": ("Mixtral", {"head_dim": 32, "intermediate_size": 96}),
}
NAMES = {
    "qwen3_moe": ("mlp", ("gate_proj", "up_proj", "down_proj")),
    "mixtral": ("block_sparse_moe", ("w1", "w3", "w2")),
}


def config_with(kind: str, **options: Any) -> transformers.PretrainedConfig:
    name, own = MODELS[kind]
    return config_of(name, **SIZES, **{**own, "num_local_experts": EXPERTS, **options})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    return {kind: made(kind, tmp_path_factory.mktemp(kind) / "a") for kind in MODELS}


def made(kind: str, folder: Path) -> Made:
    model = build(config_with(kind))
    backend = GivingBackend(weights_of_class(model, Scheme(4, 32, True)))
    config = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    return Made(model, backend, write_giving(folder, config, CANONICALIZE))


def export(found: Made, form: Any, output: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(registry, "backend", {"toy": found.backend}.__getitem__)
    export_artifact(found.artifact, form, output)


def parameters(model: transformers.PreTrainedModel) -> dict[str, np.ndarray]:
    return {name: one.detach().numpy() for name, one in model.named_parameters()}


@pytest.mark.parametrize("kind", MODELS)
def test_gguf_stacks_gate_up_and_down(
    kind: str, models: dict[str, Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(models[kind], "gguf", tmp_path / "m.gguf", monkeypatch)
    read = gguf.GGUFReader(tmp_path / "m.gguf")
    architecture = "llama" if kind == "mixtral" else "qwen3moe"
    assert read.fields["general.architecture"].contents() == architecture
    assert read.fields[f"{architecture}.expert_count"].contents() == EXPERTS
    assert read.fields[f"{architecture}.expert_used_count"].contents() == USED
    tensors = {one.name: one for one in read.tensors}
    wanted = parameters(models[kind].model)
    layer = "model.layers.0.mlp"
    gate, up = np.split(wanted[f"{layer}.experts.gate_up_proj"], 2, axis=1)
    expected = {"gate": gate, "up": up, "down": wanted[f"{layer}.experts.down_proj"]}
    for part, stack in expected.items():
        tensor = tensors[f"blk.0.ffn_{part}_exps.weight"]
        assert tensor.tensor_type.name == "Q4_0"
        assert tuple(tensor.shape) == stack.shape[::-1], "axes are the fastest first in files"
        found = dequantize(tensor.data, tensor.tensor_type)
        np.testing.assert_array_equal(found.reshape(stack.shape), stack)
    router = tensors["blk.0.ffn_gate_inp.weight"]
    found = dequantize(router.data, router.tensor_type)
    np.testing.assert_array_equal(found, wanted[f"{layer}.gate.weight"])


def test_transformers_reads_qwen3_moe(
    models: dict[str, Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(models["qwen3_moe"], "gguf", tmp_path / "m.gguf", monkeypatch)
    read = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="m.gguf", dtype=torch.float32, attn_implementation="eager"
    )
    ours, theirs = parameters(models["qwen3_moe"].model), parameters(read)
    assert ours.keys() == theirs.keys()
    for name, wanted in ours.items():
        np.testing.assert_array_equal(theirs[name], wanted, name)
    np.testing.assert_allclose(
        reference(read, tokens()), reference(models["qwen3_moe"].model, tokens()), atol=1e-5
    )


def test_the_importer_reads_mixtral(
    models: dict[str, Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers reads none from GGUF."""
    export(models["mixtral"], "gguf", tmp_path / "m.gguf", monkeypatch)
    read = imported_class(tmp_path / "m.gguf")
    assert type(read) is type(models["mixtral"].model)
    wanted = reference(models["mixtral"].model, tokens())
    np.testing.assert_array_equal(reference(read, tokens()), wanted)


@pytest.mark.parametrize("kind", MODELS)
def test_compressed_tensors_have_experts_apart(
    kind: str, models: dict[str, Made], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, folder = models[kind], tmp_path / "out"
    export(found, "compressed-tensors", folder, monkeypatch)
    inside, parts = NAMES[kind]
    layer = f"model.layers.0.{inside}"
    with safe_open(folder / "model.safetensors", "np") as file:
        names = set(file.keys())
        router = file.get_tensor(f"{layer}.gate.weight")
    for expert in range(EXPERTS):
        for part in parts:
            assert f"{layer}.experts.{expert}.{part}.weight_packed" in names
    wanted = parameters(found.model)
    np.testing.assert_array_equal(router, wanted["model.layers.0.mlp.gate.weight"])
    config = read_config(folder, allow_remote_code=False)
    stated = config["quantization_config"]
    assert stated["ignore"] == [f"{layer}.gate"], "readers take a router for a linear layer"
    assert [group["targets"] for group in stated["config_groups"].values()] == [["Linear"]]
    read = read_tensors(checkpoint_files(folder), stated)
    with torch.device("meta"):
        twin = type(found.model)(found.model.config)
    converted = convert_checkpoint(read, Conversion.of(twin))
    assert converted.keys() == wanted.keys()
    for name, rows in wanted.items():
        np.testing.assert_array_equal(converted[name].read_rows(0, len(rows)), rows, name)


def written(config: transformers.PretrainedConfig, file: Path) -> Path:
    writer = gguf.GGUFWriter(file, {"mixtral": "llama"}.get(config.model_type, "qwen3moe"))
    add_settings(writer, writer.arch, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return file


def test_experts_of_qwen_may_have_any_width(tmp_path: Path) -> None:
    file = written(config_with("qwen3_moe", moe_intermediate_size=96), tmp_path / "m.gguf")
    fields = gguf.GGUFReader(file).fields
    assert fields["qwen3moe.expert_feed_forward_length"].contents() == 96
    read = read_gguf_config(file, metadata_of(open_gguf(file)))
    assert (read["model_type"], read["moe_intermediate_size"]) == ("qwen3_moe", 96)


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        ("qwen3_moe", "norm_topk_prob", False),  # llama.cpp makes their sum 1
        ("qwen3_moe", "decoder_sparse_step", 2),
        ("mixtral", "sliding_window", 16),
    ],
)
def test_settings_that_gguf_has_not(kind: str, option: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=f"cannot say {option} = {value}"):
        written(config_with(kind, **{option: value}), tmp_path / "m.gguf")


def test_other_experts_are_refused() -> None:
    shapes = {"layers.0.experts.up": (2, 3, 4), "norm.weight": (4,)}
    with pytest.raises(UnsupportedError, match=r"experts\.up: .*gpt_oss are called.*--format hf"):
        check_experts("gpt_oss", shapes)
    check_experts("mixtral", shapes)
    check_experts("llama", {"norm.weight": (4,)})
