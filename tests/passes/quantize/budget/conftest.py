"""A small decoder whose widths groups divide, and a folder with a text for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from tests.support import dense_models


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ir.Model:
    """Two layers of 64 wide hidden states; the head is tied."""
    monkeypatch.setattr(dense_models, "D", 64)
    monkeypatch.setattr(dense_models, "FF", 96)
    return dense_models.dense_model(2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a tokenizer of a token a letter, and a text of random letters."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = {chr(97 + i): i for i in range(26)}
    tokenizer = Tokenizer(models.WordLevel(letters | {"?": 26}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"bos_token_id": 30, "eos_token_id": 31}))
    drawn = np.random.default_rng(0).integers(0, 26, 2000)
    (tmp_path / "text.txt").write_text("".join(chr(97 + i) for i in drawn))
    return tmp_path
