"""Folders of models that write down speech, by what their config.json says."""

from __future__ import annotations

from pathlib import Path

from optc.system.foreign.file import is_file, read_file
from optc.system.safe_json import JSONError, parse_json

_CONFIG = "config.json"
#: Files that say how sound becomes the input; either may be there.
PREPROCESSORS = ("preprocessor_config.json", "processor_config.json")
#: The largest config.json that is read.
_MOST_BYTES = 1 << 20


def may_transcribe(path: Path) -> bool:
    """True if a folder may have an encoder of sound and a decoder of text; False where that cannot
    be told."""
    file = path / _CONFIG
    if not is_file(file):
        return False
    try:
        config = parse_json(read_file(file, _MOST_BYTES))
    except (OSError, JSONError, ValueError):
        return False
    if not isinstance(config, dict) or config.get("is_encoder_decoder") is not True:
        return False
    return "num_mel_bins" in config or any(is_file(path / name) for name in PREPROCESSORS)
