"""Folders of models that may turn a text into another one, by what their config.json says."""

from __future__ import annotations

from pathlib import Path

from optc.system.foreign.file import is_file, read_file
from optc.system.safe_json import JSONError, parse_json
from optc.system.sources.speech_folder import may_transcribe

_CONFIG = "config.json"
#: The largest config.json that is read.
_MOST_BYTES = 1 << 20


def may_be_text_to_text(path: Path) -> bool:
    """True if a folder may have an encoder and a decoder of text; False where that cannot be
    told."""
    file = path / _CONFIG
    if not is_file(file) or may_transcribe(path):
        return False
    try:
        config = parse_json(read_file(file, _MOST_BYTES))
    except (OSError, JSONError, ValueError):
        return False
    if not isinstance(config, dict) or config.get("is_encoder_decoder") is not True:
        return False
    names = config.get("architectures")
    return isinstance(names, list) and len(names) == 1 and isinstance(names[0], str)
