"""Adapters by PEFT in the place of a model: what makes a folder one, and of which model it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.system.foreign.file import read_file
from optc.system.safe_json import JSONError, parse_json
from optc.system.sources.kind import matching
from optc.system.sources.peft_options import check_mergeable

CONFIG_FILE = "adapter_config.json"
#: Weights of an adapter, as PEFT takes them.
WEIGHTS_FILES = ("adapter_model.safetensors", "adapter_model.bin")
_CONFIG_BYTES = 1 << 20


def is_adapter(names: Collection[str], weights: Collection[str]) -> bool:
    """True for a folder that is an adapter, and not a model with one beside it.

    Args:
        names: Of its files.
        weights: Patterns of the names of models' weights.
    """
    others = [name for name in matching(names, weights) if name not in WEIGHTS_FILES]
    return CONFIG_FILE in names and not others


def read_adapter_config(folder: Path) -> Mapping[str, Any]:
    """The settings of the adapter in ``folder``, which can be merged with its base.

    Raises:
        InputError: They cannot be read, or the adapter's tensors are not there.
        UnsupportedError, InputError: As `optc.system.sources.peft_options.check_mergeable`.
    """
    file = folder / CONFIG_FILE
    try:
        config = parse_json(read_file(file, _CONFIG_BYTES))
    except (OSError, JSONError) as error:
        raise InputError(f"cannot be read: {error}", where=str(file)) from error
    if not isinstance(config, dict):
        raise InputError("is no object", where=str(file), hint="give a folder that PEFT saved")
    check_mergeable(config, str(file))
    weights_of(folder)
    return config


def weights_of(folder: Path) -> Path:
    """The file of an adapter's tensors.

    Raises:
        InputError: There is none.
    """
    for name in WEIGHTS_FILES:
        if (folder / name).is_file():
            return folder / name
    raise InputError(
        f"an adapter without {WEIGHTS_FILES[0]}",
        where=str(folder),
        hint="get that file too, or give a folder that PEFT saved",
    )
