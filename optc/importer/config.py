"""Reads config.json and judges it before anything is built from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.importer.json_file import read_object
from optc.importer.quantized.settings import check_method, settings_of, stated_beside
from optc.importer.remote_code import check_remote_code
from optc.importer.text_model.stated import decoder_part

CONFIG_FILE = "config.json"
_HINT = "is config.json the one of these weights?"
#: Most labels, layers, heads or experts that a config may call for: transformers makes objects
#: for each of them before any weight is looked at.
_MOST = 1 << 16
_LARGEST = 1 << 53
_COUNT = re.compile(r"^num_labels$|layers?$|^depths?$|^(num|n)_.*(experts|heads?)$|^n_heads?$")
#: Sizes and counts of all decoders, by the names that their families use: at least one.
_POSITIVE = frozenset(
    {
        "hidden_size",
        "n_embd",
        "d_model",
        "intermediate_size",
        "vocab_size",
        "head_dim",
        "max_position_embeddings",
        "n_positions",
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_key_value_heads",
        "num_hidden_layers",
        "n_layer",
        "n_layers",
        "num_layers",
    }
)
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
#: The most passes through the same layers that are believed before a model is built.
PASSES = 64
_INDEX = re.compile(r"\.(\d{1,9})\.")


def read_config(folder: Path, *, allow_remote_code: bool) -> dict[str, Any]:
    """The parsed config.json of ``folder``, checked for what optc refuses outright.

    Raises:
        InputError: Missing, not JSON, without ``architectures``, or with numbers that no model has.
        UnsupportedError: It or the tokenizer needs remote code that is not allowed, or the
            checkpoint is quantized in a way that optc does not read.
    """
    file = folder / CONFIG_FILE
    if not file.is_file():
        raise InputError(
            "no config.json here", where=str(folder), hint="give a Hugging Face model folder"
        )
    config = read_object(file)
    _check_class(config, file)
    check_remote_code(folder, allowed=allow_remote_code)
    if settings_of(config) is None:
        config |= stated_beside(folder)
    check_method(config, file)
    for key, value in _numbers(config):
        _check_number(key, value, file)
    return config


def check_layers_held(
    config: dict[str, Any], tensors: Iterable[str], folder: Path, passes: int = 1
) -> None:
    """Check that a config calls for no more layers than there are tensors of.

    Args:
        config: From `read_config`.
        tensors: Names of the checkpoint's tensors; numbers in them are those of layers.
        folder: Where both are.
        passes: How often a token may pass one layer, each of which may count as a layer.

    Raises:
        InputError: It calls for more.
    """
    wanted = decoder_part(config)
    held = len({index for name in tensors for index in _INDEX.findall(name)})
    for key in _LAYERS:
        count = wanted.get(key)
        if isinstance(count, int) and count > held * passes:
            raise InputError(
                f"{key} is {count}, the checkpoint holds tensors of {held} layers",
                where=str(folder / CONFIG_FILE),
                hint=_HINT,
            )


def _check_class(config: dict[str, Any], file: Path) -> None:
    architectures, family = config.get("architectures"), config.get("model_type")
    if not architectures or not family:
        missing = "model_type" if architectures else "architectures"
        raise InputError(
            f"{missing} is missing: the config does not say which model class it belongs to",
            where=str(file),
            hint='for example "architectures": ["LlamaForCausalLM"], "model_type": "llama"',
        )
    named = isinstance(architectures, list) and all(isinstance(a, str) for a in architectures)
    if not named or not isinstance(family, str):
        key = "model_type" if named else "architectures"
        raise InputError(
            f"{key} is not {'a text' if named else 'a list of texts'}",
            where=str(file),
            hint='for example "architectures": ["LlamaForCausalLM"], "model_type": "llama"',
        )


def _numbers(value: object, key: str = "") -> Iterator[tuple[str, int]]:
    """Every integer of a config with the key that it stands under; nesting is limited."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield from _numbers(child, name)
    elif isinstance(value, list):
        for child in value:
            yield from _numbers(child, key)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield key, value


def _check_number(key: str, value: int, file: Path) -> None:
    where = f"{file}: {key}"
    if key in _POSITIVE and value < 1:
        raise InputError(f"{value} is less than 1", where=where, hint="the config is damaged")
    most = _MOST if _COUNT.search(key) else _LARGEST
    if abs(value) > most:
        raise InputError(
            f"{value} is more than optc believes of any model ({most:,} at most)",
            where=where,
            hint="the config is damaged",
        )
