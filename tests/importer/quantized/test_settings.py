"""Which way of quantizing a config states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optc.errors import InputError, UnsupportedError
from optc.importer.quantized.methods import _READERS
from optc.importer.quantized.settings import (
    METHODS,
    check_method,
    method_of,
    settings_of,
    stated_beside,
)

FILE = Path("config.json")


def test_every_method_has_a_reader() -> None:
    assert tuple(sorted(_READERS)) == METHODS


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({"quant_method": "gptq"}, "gptq"),
        ({"load_in_4bit": True}, "bitsandbytes"),
        ({"quant_algo": "FP8"}, "modelopt"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "modelopt"),
        ({}, "unknown"),
    ],
)
def test_the_method(settings: dict[str, Any], method: str) -> None:
    assert method_of(settings) == method


def test_where_the_settings_stand() -> None:
    stated = {"quant_method": "awq"}
    assert settings_of({"quantization_config": stated}) is stated
    assert settings_of({"compression_config": stated}) is stated
    assert settings_of({"text_config": {"quantization_config": stated}}) is stated
    assert settings_of({"quantization_config": None}) is None
    check_method({"quantization_config": stated}, FILE)
    check_method({}, FILE)


def test_modelopts_own_file(tmp_path: Path) -> None:
    assert stated_beside(tmp_path) == {}
    file = tmp_path / "hf_quant_config.json"
    file.write_text('{"quantization": {"quant_algo": "NVFP4"}}')
    settings = settings_of(stated_beside(tmp_path))
    assert settings == {"quant_algo": "NVFP4", "quant_method": "modelopt"}
    file.write_text('{"quantization": 3}')
    with pytest.raises(InputError, match=r"hf_quant_config\.json: quantization is not an object"):
        stated_beside(tmp_path)


def test_other_methods_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"by hqq, which optc.*optc reads awq, bitsandbytes"):
        check_method({"quantization_config": {"quant_method": "hqq"}}, FILE)
    with pytest.raises(InputError, match="quantization_config is not an object"):
        check_method({"quantization_config": [1]}, FILE)
