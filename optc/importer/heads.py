"""A folder of Medusa heads: its files and their digest."""

from __future__ import annotations

from pathlib import Path

from optc.errors import InputError
from optc.importer.safetensors import read_header
from optc.importer.source_digest import digest_files

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "medusa_heads.safetensors"
HINT = "train heads with examples/training/train_medusa.py"


def digest_heads(folder: Path) -> str:
    """sha256 (hex) over names and contents of the files, wherever the folder lies.

    Raises:
        InputError: A file is missing, or the weights are damaged or not finite.
    """
    files = {name: folder / name for name in (CONFIG_FILE, WEIGHTS_FILE)}
    for name, file in files.items():
        if not file.is_file():
            raise InputError(f"no {name}", where=str(folder), hint=HINT)
    return digest_files(files, read_header(files[WEIGHTS_FILE]).values())
