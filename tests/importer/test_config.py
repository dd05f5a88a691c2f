"""What is refused by config.json alone, before transformers sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optc.errors import InputError, UnsupportedError
from optc.importer.config import check_layers_held, read_config

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "rope_theta": 10**12,
    "pad_token_id": -1,
}


def read(folder: Path, **changes: Any) -> dict[str, Any]:
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    return read_config(folder, allow_remote_code=False)


def test_a_sound_config_is_given_back(tmp_path: Path) -> None:
    assert read(tmp_path, num_labels=65536) == CONFIG | {"num_labels": 65536}


@pytest.mark.parametrize(
    ("changes", "where", "message"),
    [
        ({"architectures": 3}, "", "architectures is not a list of texts"),
        ({"architectures": [["LlamaForCausalLM"]]}, "", "architectures is not a list of texts"),
        ({"architectures": []}, "", "architectures is missing"),
        ({"model_type": ["llama"]}, "", "model_type is not a text"),
        ({"num_attention_heads": 0}, ": num_attention_heads", "0 is less than 1"),
        ({"num_hidden_layers": -1}, ": num_hidden_layers", "-1 is less than 1"),
        ({"hidden_size": 10**18}, ": hidden_size", "more than optc believes of any model"),
        ({"num_labels": 10**9}, ": num_labels", r"more than optc .* \(65,536 at most\)"),
        ({"num_hidden_layers": 10**7}, ": num_hidden_layers", "65,536 at most"),
        ({"text_config": {"num_hidden_layers": 10**7}}, ": num_hidden_layers", "65,536 at most"),
        ({"vision_config": {"depth": 10**7}}, ": depth", "65,536 at most"),
        ({"num_local_experts": 10**7}, ": num_local_experts", "65,536 at most"),
        ({"encoder": [{"n_layers": 10**7}]}, ": n_layers", "65,536 at most"),
        ({"partial": float("nan")}, "", "not readable as JSON: it holds NaN"),
    ],
    ids=str,
)
def test_what_no_model_has_names_file_and_key(
    changes: dict[str, Any], where: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, **changes)
    assert caught.value.where == f"{tmp_path / 'config.json'}{where}"


def test_quantized_already(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="quantized already, by hqq"):
        read(tmp_path, quantization_config={"quant_method": "hqq"})
    for settings in (3, [1]):
        with pytest.raises(InputError, match="quantization_config is not an object"):
            read(tmp_path, quantization_config=settings)
    read(tmp_path, quantization_config={"quant_method": "gptq"})


NAMES = ["model.embed.weight", "model.layers.0.norm.weight", "model.layers.7.mlp.weight"]


@pytest.mark.parametrize("key", ["num_hidden_layers", "n_layer"])
def test_layers_that_the_checkpoint_lacks(key: str, tmp_path: Path) -> None:
    check_layers_held({key: 2}, NAMES, tmp_path)
    check_layers_held({"text_config": {key: 1}, key: 3}, NAMES, tmp_path)
    for config in ({key: 3}, {"text_config": {key: 3}}):
        with pytest.raises(InputError, match=f"{key} is 3, .* holds tensors of 2 layers") as caught:
            check_layers_held(config, NAMES, tmp_path)
        assert caught.value.where == str(tmp_path / "config.json")


def test_layers_that_are_passed_more_than_once(tmp_path: Path) -> None:
    check_layers_held({"num_hidden_layers": 6}, NAMES, tmp_path, passes=3)
    with pytest.raises(InputError, match="num_hidden_layers is 7"):
        check_layers_held({"num_hidden_layers": 7}, NAMES, tmp_path, passes=3)
