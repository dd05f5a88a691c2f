"""The quantization settings of a checkpoint in config.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optc.errors import InputError, UnsupportedError
from optc.importer.json_file import read_object

#: Ways of quantizing whose tensors are read, in the words of ``quant_method``.
METHODS = ("awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq", "modelopt", "mxfp4")
_KEYS = ("quantization_config", "compression_config")
#: Where ModelOpt states what newer versions of it state in config.json, too.
MODELOPT_FILE = "hf_quant_config.json"


def settings_of(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """``quantization_config``; None where the checkpoint has floats."""
    text = config.get("text_config")
    places = [config, text] if isinstance(text, Mapping) else [config]
    found = (place.get(key) for place in places for key in _KEYS)
    return next((one for one in found if isinstance(one, Mapping) and one), None)


def stated_beside(folder: Path) -> dict[str, Any]:
    """``quantization_config`` as ModelOpt states it in a file of its own; empty without that.

    Raises:
        InputError: The file is damaged.
    """
    file = folder / MODELOPT_FILE
    if not file.is_file():
        return {}
    stated = read_object(file).get("quantization")
    if not isinstance(stated, Mapping):
        raise InputError("quantization is not an object", where=str(file))
    return {"quantization_config": {**stated, "quant_method": "modelopt"}}


def method_of(settings: Mapping[str, Any]) -> str:
    """``quant_method``, or what the other settings tell of it."""
    method = settings.get("quant_method")
    if method is None and settings.get("load_in_4bit") is not None:
        return "bitsandbytes"
    if method == "modelopt" or settings.get("quant_algo") is not None:
        return "modelopt"
    return str(method or "unknown")


def check_method(config: Mapping[str, Any], file: Path) -> None:
    """Check that a checkpoint is quantized in a way that is read, if it is quantized.

    Raises:
        InputError: ``quantization_config`` is no object.
        UnsupportedError: The way is another; names it.
    """
    stated = config.get("quantization_config")
    if stated and not isinstance(stated, Mapping):
        raise InputError("quantization_config is not an object", where=str(file))
    settings = settings_of(config)
    if settings is None:
        return
    method = method_of(settings)
    if method not in METHODS:
        raise UnsupportedError(
            f"the checkpoint is quantized already, by {method}, which optc does not read",
            where=str(file),
            hint=f"optc reads {', '.join(METHODS)} and GGUF; or start from the unquantized model",
        )


def whole(settings: Mapping[str, Any], *keys: str, default: int | None = None) -> int:
    """The whole number under the first of ``keys`` that is there.

    Raises:
        InputError: There is none, and no ``default``, or it is something else.
    """
    found = next((settings[key] for key in keys if settings.get(key) is not None), default)
    if type(found) is not int:
        raise InputError(
            f"{keys[0]} is {found!r}, not a whole number", where="config.json: quantization_config"
        )
    return found
