"""The artifact that answers follow from, as receipts name it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from optc import registry
from optc.runtime.loader import load
from optc.runtime.receipts.origin import origin_of
from optc.runtime.receipts.receipt import NOWHERE, Origin
from tests.runtime.support.artifacts import ToyBackend, write_artifact
from tests.serve.toys import toy_engine


@pytest.mark.parametrize("tokenizer", [True, False])
def test_an_artifact_s_engine(
    tokenizer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = ToyBackend()
    monkeypatch.setattr(registry, "backend", lambda name: toy)
    artifact = write_artifact(tmp_path / "a", tokenizer=tokenizer)
    file = artifact.path / "tokenizer" / "tokenizer.json"
    digest = hashlib.sha256(file.read_bytes()).hexdigest() if tokenizer else ""
    with load(artifact.path, kv_memory="64KiB") as engine:
        assert origin_of(engine) == Origin(artifact.digest, "target", digest)


def test_an_engine_of_no_artifact() -> None:
    with toy_engine() as engine:
        assert origin_of(engine) is NOWHERE
