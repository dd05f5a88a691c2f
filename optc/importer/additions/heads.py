"""A folder of Medusa heads: its files and their digest."""

from __future__ import annotations

from pathlib import Path

from optc.importer.source_digest import digest_trained

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "medusa_heads.safetensors"
HINT = "train heads with examples/training/train_medusa.py"


def digest_heads(folder: Path) -> str:
    """sha256 (hex) over names and contents of the files, wherever the folder lies.

    Raises:
        InputError: A file is missing, or the weights are damaged or not finite.
    """
    return digest_trained(folder, CONFIG_FILE, WEIGHTS_FILE, HINT)
