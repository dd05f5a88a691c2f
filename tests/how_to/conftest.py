from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from optc import registry
from tests.cli.conftest import CHAT_TEMPLATE, imported_tiny, optc, quick_import, stub, tiny_model
from tests.runtime.support.artifacts import SPEC, ToyBackend, write_artifact

__all__ = ["imported_tiny", "optc", "quick_import", "stub", "tiny_model"]


@pytest.fixture
def long_talker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a user who has artifacts/model, with a chat template and room for a talk."""
    monkeypatch.setattr(registry, "backend", {"toy": ToyBackend()}.__getitem__)
    spec = replace(SPEC, max_context=512)
    write_artifact(tmp_path / "artifacts/model", chat_template=CHAT_TEMPLATE, spec=spec)
    return tmp_path
