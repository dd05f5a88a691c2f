from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from optc import registry
from tests.support.stub import AheadOfTime, StubBackend


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder as far as options are checked."""
    folder = tmp_path / "m"
    folder.mkdir()
    config = {"max_position_embeddings": 64, "num_hidden_layers": 4}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(Tokenizer(BPE()).to_str())
    return folder


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> dict[str, StubBackend]:
    """All backends there are: two for the CPU, and one for GPUs whose recipes are its own."""
    found = {
        "tvm": StubBackend("tvm", 20),
        "other": StubBackend("other", 10),
        "tensorrt": AheadOfTime("tensorrt", 30),
    }
    monkeypatch.setattr(registry, "backend_names", lambda: tuple(sorted(found)))
    monkeypatch.setattr(registry, "backend", found.__getitem__)
    return found
