"""A small decoder whose widths groups divide, and a folder with a text for it."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from tests.support import dense_models
from tests.support.letters import letters_folder


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ir.Model:
    """Two layers of 64 wide hidden states and 96 neurons; the head is tied."""
    monkeypatch.setattr(dense_models, "D", 64)
    monkeypatch.setattr(dense_models, "FF", 96)
    return dense_models.dense_model(2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a tokenizer of a token a letter, and a text of random letters."""
    return letters_folder(tmp_path, 2000)
