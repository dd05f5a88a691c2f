"""Folders of models that may encode texts or images, by the classes that config.json names."""

from __future__ import annotations

import re
from pathlib import Path

from optc.system.foreign.file import read_file
from optc.system.safe_json import JSONError, parse_json

_CONFIG = "config.json"
MODULES = "modules.json"
#: Classes of transformers that take tensors and give tensors, and generate nothing.
_ENCODES = re.compile(
    r"\w+((?<!LMHead)Model|ForMaskedLM|ForPreTraining|ForCTC|"
    r"For(Sequence|Token|Image|Audio|Video)Classification|ForQuestionAnswering|"
    r"ForMultipleChoice|ForNextSentencePrediction|ForDepthEstimation|ForSemanticSegmentation)"
)
#: The largest config.json that is read.
_MOST_BYTES = 1 << 20


def may_be_encoder(path: Path) -> bool:
    """True if a folder may have a model that encodes; False where that cannot be told."""
    file = path / _CONFIG
    if not file.is_file():
        return False
    try:
        config = parse_json(read_file(file, _MOST_BYTES))
    except (OSError, JSONError, ValueError):
        return False
    names = config.get("architectures") if isinstance(config, dict) else None
    if not isinstance(names, list) or len(names) != 1 or not isinstance(names[0], str):
        return False
    return _ENCODES.fullmatch(names[0]) is not None
