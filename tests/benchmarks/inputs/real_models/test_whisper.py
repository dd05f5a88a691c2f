"""Whisper out of a CTranslate2 file, against what transformers' class of that configuration has."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from transformers import WhisperConfig, WhisperForConditionalGeneration

from benchmarks.inputs.real_models.whisper import Array, convert, read_variables
from optc.errors import InputError

WIDTH, VOCABULARY, LAYERS = 64, 51864, 2


def variables() -> dict[str, Array]:
    """What a converter writes of a small Whisper, in random numbers."""
    draw = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {
        "encoder/conv1/weight": (WIDTH, 80, 3),
        "encoder/conv1/bias": (WIDTH,),
        "encoder/conv2/weight": (WIDTH, WIDTH, 3),
        "encoder/conv2/bias": (WIDTH,),
        "decoder/embeddings/weight": (VOCABULARY, WIDTH),
    }
    for side, positions in (("encoder", 1500), ("decoder", 448)):
        shapes[f"{side}/position_encodings/encodings"] = (positions, WIDTH)
        shapes |= norm(f"{side}/layer_norm")
        for layer in range(LAYERS):
            at = f"{side}/layer_{layer}"
            shapes |= attention(f"{at}/self_attention", (3, 1)) | norm(f"{at}/ffn/layer_norm")
            shapes |= linear(f"{at}/ffn/linear_0", 4 * WIDTH, WIDTH)
            shapes |= linear(f"{at}/ffn/linear_1", WIDTH, 4 * WIDTH)
            if side == "decoder":
                shapes |= attention(f"{at}/attention", (1, 2, 1))
    return {name: draw.normal(size=shape).astype(np.float16) for name, shape in shapes.items()}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}/gamma": (WIDTH,), f"{name}/beta": (WIDTH,)}


def linear(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/weight": (rows, columns), f"{name}/bias": (rows,)}


def attention(name: str, stacked: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    found = norm(f"{name}/layer_norm")
    for index, count in enumerate(stacked):
        found |= linear(f"{name}/linear_{index}", count * WIDTH, WIDTH)
    return found


def write_text(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data


def ct2_file(version: int, tensors: dict[str, Array]) -> bytes:
    """The file's bytes, by the format of CTranslate2's model writer."""
    parts = [struct.pack("<I", version), write_text("WhisperSpec"), struct.pack("<I", 3),
             struct.pack("<I", len(tensors))]  # fmt: skip
    for name, array in tensors.items():
        parts += [write_text(name), struct.pack("<B", array.ndim)]
        parts += [struct.pack("<I", size) for size in array.shape]
        parts += [struct.pack("<BI", 4, array.nbytes), array.tobytes()]
    return b"".join(parts)


def test_the_folder_has_the_tensors_of_transformers_class(tmp_path: Path) -> None:
    known = variables()
    (tmp_path / "model.bin").write_bytes(ct2_file(6, known))
    convert(tmp_path)
    assert not (tmp_path / "model.bin").exists()
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["d_model"], config["decoder_layers"], config["num_mel_bins"]) == (
        WIDTH,
        LAYERS,
        80,
    )
    model = WhisperForConditionalGeneration(WhisperConfig(**config))
    expected = {name: tuple(value.shape) for name, value in model.named_parameters()}
    found = load_file(tmp_path / "model.safetensors")
    assert {name: array.shape for name, array in found.items()} == expected
    layer = "model.decoder.layers.1"
    source = known["decoder/layer_1/attention/linear_1/weight"]
    np.testing.assert_array_equal(found[f"{layer}.encoder_attn.k_proj.weight"], source[:WIDTH])
    np.testing.assert_array_equal(found[f"{layer}.encoder_attn.v_proj.weight"], source[WIDTH:])
    source = known["decoder/layer_1/self_attention/linear_0/bias"]
    np.testing.assert_array_equal(found[f"{layer}.self_attn.v_proj.bias"], source[2 * WIDTH :])
    source = known["encoder/layer_0/ffn/layer_norm/beta"]
    name = "model.encoder.layers.0.final_layer_norm.bias"
    np.testing.assert_array_equal(found[name], source)


@pytest.mark.parametrize("version", [4, 5, 6])
def test_every_variable_is_read(tmp_path: Path, version: int) -> None:
    known = {"a/b": np.arange(6, dtype=np.float16).reshape(2, 3), "c": np.zeros(4, np.float16)}
    (tmp_path / "model.bin").write_bytes(ct2_file(version, known))
    found = read_variables(tmp_path / "model.bin")
    assert list(found) == ["a/b", "c"]
    for name, array in known.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("kept", [3, 40, -1])
def test_a_file_that_ends_early_is_refused(tmp_path: Path, kept: int) -> None:
    (tmp_path / "model.bin").write_bytes(ct2_file(6, variables())[:kept])
    with pytest.raises(InputError, match=r"model.bin: no whole CTranslate2 file of Whisper: "):
        convert(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.bin"]


def test_a_file_of_another_version_or_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(ct2_file(7, variables()))
    with pytest.raises(InputError, match="binary version 7"):
        convert(tmp_path)
    (tmp_path / "model.bin").write_bytes(ct2_file(6, {"c": np.zeros(4, np.float16)}))
    with pytest.raises(InputError, match="encoder/position_encodings/encodings"):
        convert(tmp_path)
