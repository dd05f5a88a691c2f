"""A file of options: a mapping from their names to values, in YAML or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optc.errors import InputError, UnavailableError
from optc.system.options.user_text import read_user_text
from optc.system.safe_json import JSONError, parse_json

#: What PyYAML makes of a value that is not of the type that it announces, and of deep nesting.
_BAD_VALUES = (RecursionError, ValueError, LookupError, TypeError, AttributeError)


def read_config(path: Path) -> dict[str, Any]:
    """The values in a file; ``.json`` is JSON, all else YAML.

    Raises:
        InputError: It cannot be read, or is no mapping.
        UnavailableError: It is YAML, and pyyaml is not installed.
    """
    text = read_user_text(path, "--config")
    value = _json(text, path) if path.suffix == ".json" else _yaml(text, path)
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InputError(
            "not a mapping from options to values",
            where=str(path),
            hint="such as 'max-tokens: 64'",
        )
    return value


def _json(text: str, path: Path) -> Any:
    try:
        return parse_json(text, unique_keys=True)
    except JSONError as error:
        raise InputError(f"not JSON: {error}", where=str(path)) from error


def _yaml(text: str, path: Path) -> Any:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise UnavailableError(
            "the package 'yaml' is not installed",
            where=str(path),
            hint="pip install 'optc[compile]', or write it as JSON in a file named .json",
        ) from error
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, *_BAD_VALUES) as error:
        reason = " ".join(str(error).split()).replace('in "<unicode string>", ', "in ")
        raise InputError(f"not YAML: {reason}", where=str(path)) from error
