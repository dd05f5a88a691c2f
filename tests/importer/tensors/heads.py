"""Tiny folders of encoders with heads over texts, with seeded random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.importer.tensors.encoders import bert


def with_head(folder: Path, kind: str, labels: list[str], **stated: Any) -> Path:
    """The tiny BERT as a class ``kind`` with labels, and more that its config.json states."""
    bert(folder)
    config = transformers.BertConfig.from_pretrained(folder)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: index for index, label in enumerate(labels)}
    torch.manual_seed(1)
    getattr(transformers, kind)(config).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | stated))
    _pairs(folder)
    return folder


def _pairs(folder: Path) -> None:
    """Let the tokenizer read two texts together."""
    path = folder / "tokenizer.json"
    reader = json.loads(path.read_text())
    part = [
        {"Sequence": {"id": "B", "type_id": 1}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 1}},
    ]
    processor = reader["post_processor"]
    processor["pair"] = [*processor["single"], *part]
    path.write_text(json.dumps(reader))
