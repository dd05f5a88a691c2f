"""The tokenizer of an artifact as the files of a model folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from optc.artifact.artifact import Artifact
from optc.compiling.stages.generation import FOLLOWED


def write_tokenizer(folder: Path, artifact: Artifact) -> None:
    """Write tokenizer.json and what says how it is used; nothing where there is no tokenizer."""
    entry, file = artifact.manifest.tokenizer, artifact.tokenizer_file()
    if entry is None or file is None:
        return
    shutil.copyfile(file, folder / "tokenizer.json")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **entry.template_tokens}
    _write(folder / "tokenizer_config.json", settings)
    if template := artifact.chat_template():
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    named = {name: key for key, name in FOLLOWED.items()}
    generation: dict[str, Any] = {
        named[name]: value for name, value in artifact.manifest.generation.items()
    }
    if entry.eos_token_ids:
        generation["eos_token_id"] = list(entry.eos_token_ids)
        if entry.bos_token_id is not None:
            generation["bos_token_id"] = entry.bos_token_id
    if generation:
        _write(folder / "generation_config.json", generation)


def _write(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
