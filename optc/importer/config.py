"""Reading and judging config.json before anything is built from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from optc.errors import InputError, UnsupportedError


def read_config(folder: Path, *, allow_remote_code: bool) -> dict[str, Any]:
    """The parsed config.json of ``folder``, checked for what optc refuses outright.

    Raises:
        InputError: Missing, not JSON, or without ``architectures``.
        UnsupportedError: It needs remote code that is not allowed, or the checkpoint is
            quantized already.
    """
    file = folder / "config.json"
    if not file.is_file():
        raise InputError(
            "no config.json here", where=str(folder), hint="give a Hugging Face model folder"
        )
    try:
        config = json.loads(file.read_text())
    except (ValueError, OSError) as error:
        raise InputError(f"not readable as JSON: {error}", where=str(file)) from error
    if not isinstance(config, dict):
        raise InputError("not a JSON object", where=str(file))
    _check(config, file, allow_remote_code)
    return config


def _check(config: dict[str, Any], file: Path, allow_remote_code: bool) -> None:
    if not config.get("architectures") or not config.get("model_type"):
        missing = "model_type" if config.get("architectures") else "architectures"
        raise InputError(
            f"{missing} is missing: the config does not say which model class it belongs to",
            where=str(file),
            hint='for example "architectures": ["LlamaForCausalLM"], "model_type": "llama"',
        )
    if config.get("auto_map") and not allow_remote_code:
        raise UnsupportedError(
            "auto_map names Python code of the repository, which optc would have to run",
            where=str(file),
            hint="read that code, then allow it explicitly (allow_remote_code), or remove auto_map "
            "to use the class that transformers itself has",
        )
    if config.get("quantization_config"):
        method = config["quantization_config"].get("quant_method", "unknown")
        raise UnsupportedError(
            f"the checkpoint is quantized already ({method})",
            where=str(file),
            hint="start from the unquantized model",
        )
