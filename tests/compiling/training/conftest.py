"""A tiny model's folder, imported once, and a text."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from optc.importer import import_model as importer
from optc.importer.import_model import import_model
from optc.importer.imported import ImportedModel
from tests.support.stub import write_tiny_model


@pytest.fixture(scope="session")
def trained_source(tmp_path_factory: pytest.TempPathFactory) -> ImportedModel:
    folder = write_tiny_model(tmp_path_factory.mktemp("source") / "tiny", 2, weight_std=0.3)
    return import_model(folder)


@pytest.fixture
def source(trained_source: ImportedModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder; an import of any folder gives its model, with the weights that are there."""

    def quick(folder: Path, *, allow_remote_code: bool = False) -> ImportedModel:
        assert folder == trained_source.folder
        return dataclasses.replace(trained_source, model=trained_source.model.clone())

    monkeypatch.setattr(importer, "import_model", quick)
    return trained_source.folder


@pytest.fixture
def text(tmp_path: Path) -> Path:
    words = np.random.default_rng(0).integers(97, 103, 6000).astype(np.uint8)
    path = tmp_path / "text.txt"
    path.write_bytes(words.tobytes())
    return path
