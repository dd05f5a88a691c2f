"""What readers make of exported files: the engine's integers, in the class that was compiled."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import onnx_ir as ir
import pytest
import torch
import transformers
from safetensors import safe_open

from optc import registry
from optc.compiling.export.export import export_artifact
from optc.compiling.export.parameters import read_parameters
from optc.compiling.export.source_class import read_class
from optc.importer.checkpoint import checkpoint_files, read_tensors
from optc.importer.config import read_config
from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import LazyWeight
from optc.passes.numerics.affine import quantized_rows
from optc.passes.numerics.scheme import Scheme
from tests.compiling.export.conftest import Made
from tests.compiling.export.engines import GraphWeight
from tests.importer.decoders import tokens

#: Largest difference from float weights, by the largest of them: int4 grids clip a little.
STEP = {"qwen2": 1 / 127, "qwen3": 1 / 5}


def engine_parameters(made: Made) -> dict[str, np.ndarray]:
    """Every parameter of the class as the engine has it."""
    model = read_class(
        made.artifact.manifest.source,
        made.backend.weights,
        [done.name for done in made.artifact.manifest.passes if done.moves_weights],
    )
    found = read_parameters(made.backend.weights, model.origins)
    return {
        name: one.floats(0, one.rows)
        if isinstance(one, QuantizedRows)
        else np.asarray(one.read_rows(0, one.rows_shape[0]))
        for name, one in found.items()
    }


def test_parameters_are_those_of_the_class(made: Made) -> None:
    ours = engine_parameters(made)
    theirs = dict(made.model.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, parameter in theirs.items():
        wanted = parameter.detach().numpy()
        step = np.abs(wanted).max() * STEP[made.model.config.model_type]
        np.testing.assert_allclose(ours[name], wanted, rtol=0, atol=step if wanted.ndim > 1 else 0)


def test_transformers_reads_the_gguf_file(made: Made, tmp_path: Path) -> None:
    written = export_artifact(made.artifact, "gguf", tmp_path / "m.gguf")
    read = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="m.gguf", dtype=torch.float32, attn_implementation="eager"
    )
    ours = engine_parameters(made)
    for name, parameter in read.named_parameters():
        found = parameter.detach().numpy()
        # scales of groups are numbers of float16; those of channels are rounded to it
        np.testing.assert_allclose(found, ours[name], rtol=2**-11, atol=1e-7, err_msg=name)
    assert sum(written.losses.values()) < 2**-10
    made.model.load_state_dict(read.state_dict())
    ids = torch.from_numpy(tokens())
    with torch.no_grad():
        assert torch.equal(made.model(ids).logits, read(ids).logits), "another config"


def test_types_and_tokenizer_of_the_gguf_file(made: Made, tmp_path: Path) -> None:
    export_artifact(made.artifact, "gguf", tmp_path / "m.gguf")
    read = gguf.GGUFReader(tmp_path / "m.gguf")
    kinds = {tensor.name: tensor.tensor_type.name for tensor in read.tensors}
    plain = "Q8_0" if made.model.config.model_type == "qwen2" else "Q4_0"
    assert kinds["blk.0.ffn_down.weight"] == kinds["blk.0.attn_k.weight"] == plain
    assert kinds["output_norm.weight"] == "F32"
    assert ("output.weight" in kinds) == (made.model.config.model_type == "qwen2")
    listed = read.fields["tokenizer.ggml.tokens"].contents()
    assert (len(listed), listed[:3]) == (259, ["<s>", "</s>", "<pad>"])
    assert read.fields["tokenizer.ggml.eos_token_id"].contents() == 1


def test_compressed_tensors_are_read_with_the_same_integers(made: Made, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    written = export_artifact(made.artifact, "compressed-tensors", folder)
    assert written.losses == {}
    ours = engine_parameters(made)
    config = read_config(folder, allow_remote_code=False)
    read = read_tensors(checkpoint_files(folder), config["quantization_config"])
    # the importer makes groups of channels, whose scales are numbers of float16
    tolerance = 2**-11 if made.model.config.model_type == "qwen2" else 0
    for name, wanted in ours.items():
        found = read[name].read_rows(0, len(wanted))
        np.testing.assert_allclose(found, wanted, rtol=tolerance, err_msg=name)
    stated = config["quantization_config"]
    assert stated["format"] == "pack-quantized"
    assert json.loads((folder / "tokenizer_config.json").read_text())["eos_token"] == "</s>"
    with safe_open(folder / "model.safetensors", "np") as file:
        scales = file.get_tensor("model.layers.0.self_attn.o_proj.weight_scale")
    name = "model.layers.0.self_attn.o_proj.weight.quantized"
    whole = made.backend.weights[name].rows(ours[name.removesuffix(".quantized")].shape)
    assert isinstance(whole, QuantizedRows)
    wanted = whole.read(0, whole.rows).scales
    np.testing.assert_array_equal(scales.astype(np.float32), wanted.reshape(scales.shape))


SCHEMES = {
    "int4 asymmetric": (Scheme(4, 32, False), "int4 groups of 32 asymmetric"),
    "int8 asymmetric": (Scheme(8, 32, False), "int8 groups of 32 asymmetric"),
    "int3 with integer scales": (Scheme(3, 32, False, True), "int8 per channel"),
}


@pytest.mark.parametrize("label", SCHEMES)
def test_other_grids_in_compressed_tensors(
    kinds: dict[str, Made], label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, (scheme, kind) = kinds["qwen3"], SCHEMES[label]
    monkeypatch.setattr(registry, "backend", {"toy": made.backend}.__getitem__)
    parameter = made.model.model.layers[0].mlp.down_proj.weight.detach().numpy()
    floats = LazyWeight(lambda a, b: parameter[a:b], parameter.shape, ir.DataType.FLOAT, "w")
    rows = quantized_rows(floats, scheme, "w")
    name = "model.layers.0.mlp.down_proj.weight"
    monkeypatch.setitem(made.backend.weights, f"{name}.quantized", GraphWeight(rows))
    written = export_artifact(made.artifact, "compressed-tensors", tmp_path / "out")
    assert written.types[kind] == 1
    config = read_config(tmp_path / "out", allow_remote_code=False)
    read = read_tensors(checkpoint_files(tmp_path / "out"), config["quantization_config"])
    wanted = rows.floats(0, rows.rows)
    rounded = 2**-11 if scheme.integer_scales else 1e-6
    np.testing.assert_allclose(read[name].read_rows(0, rows.rows), wanted, rounded, 1e-6)


@pytest.mark.parametrize("form", ["gguf", "compressed-tensors"])
def test_a_second_export_has_the_same_bytes(made: Made, form: str, tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        export_artifact(made.artifact, form, tmp_path / name)  # type: ignore[arg-type]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.gguf", "b.gguf"]
    files = [
        [one.read_bytes() for one in sorted(path.rglob("*"))]
        if path.is_dir()
        else path.read_bytes()
        for path in (tmp_path / "a.gguf", tmp_path / "b.gguf")
    ]
    assert files[0] == files[1]
