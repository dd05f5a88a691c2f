"""Keeps Python code of a model folder from running unless the user allowed it.

transformers runs such code where ``auto_map`` names it, in config.json or tokenizer_config.json,
and asks on the terminal when nobody told it whether it may. optc reads no other file of a folder
through transformers, so that what processors or ``custom_generate`` bring is never run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from optc.errors import UnsupportedError
from optc.importer.json_file import read_object

_KEY = "auto_map"
_FILES = ("config.json", "tokenizer_config.json")


def check_remote_code(folder: Path, *, allowed: bool) -> None:
    """Check that nothing in ``folder`` asks to run code of its own, at whatever depth.

    Raises:
        UnsupportedError: Something does and it is not ``allowed``; names the file and the key.
        InputError: A file cannot be read.
    """
    if allowed:
        return
    for file in (folder / name for name in _FILES):
        if not file.is_file():
            continue
        for key in _keys(read_object(file, finite=False), ""):
            raise UnsupportedError(
                f"{key} names Python code of the repository, which optc would have to run",
                where=str(file),
                hint="read that code, then allow it with --allow-remote-code (of optc compile and "
                f"plan), or remove {_KEY} to use the class that transformers itself has",
            )


def never_ask() -> None:
    """Make transformers refuse code where it would ask on the terminal whether to run it.

    It asks wherever it is not told, and some of its own classes do not pass on what they were
    told to the parts they are made of.
    """
    from transformers import dynamic_module_utils

    dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0  # seconds that it would wait for an answer


def _keys(value: object, path: str) -> Iterator[str]:
    """The paths of ``auto_map``, such as ``text_config.auto_map``; nesting is limited."""
    if isinstance(value, dict):
        for name, child in value.items():
            if name == _KEY and child:
                yield f"{path}{name}"
            yield from _keys(child, f"{path}{name}.")
    elif isinstance(value, list):
        for child in value:
            yield from _keys(child, path)
