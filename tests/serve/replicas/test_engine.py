"""Artifacts that replicas serve."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from optc import registry
from optc.artifact.artifact import Artifact
from optc.errors import ArtifactError, InputError
from optc.runtime.loader import load
from optc.runtime.params import SamplingParams
from optc.runtime.receipts.origin import origin_of
from optc.runtime.settings import ServeSettings
from optc.serve.replicas.engine import open_artifact, replicated
from optc.serve.replicas.wire import Replicas
from tests.runtime.support.artifacts import ToyBackend, write_artifact
from tests.serve.replicas.local import LocalReplicas

SETTINGS = ServeSettings(kv_memory="64KiB")


def nothing() -> Replicas:
    raise AssertionError("no replica is to be started")


def test_an_artifact_is_as_it_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = ToyBackend()
    monkeypatch.setattr(registry, "backend", lambda name: toy)
    generation = {"temperature": 0.0, "max_tokens": 7}
    path = write_artifact(tmp_path / "a", generation=generation).path
    opened = [lambda log: open_artifact(path, SETTINGS, log)] * 2
    engine = replicated(path, SETTINGS, lambda: LocalReplicas(opened))
    with engine, load(path, SETTINGS) as alone:
        assert len(toy.loaded) == 3  # two of replicas: none is loaded by the server itself
        assert engine.defaults == alone.defaults == generation
        assert engine.spec == alone.spec
        assert engine.kv_plan == alone.kv_plan
        assert engine.eos_token_ids == alone.eos_token_ids
        assert origin_of(engine) == origin_of(alone)
        for params in (None, SamplingParams(max_tokens=20)):
            (one,), (other,) = engine.generate(["hi"], params), alone.generate(["hi"], params)
            assert one.token_ids == other.token_ids
            assert one.text == other.text
    plain = replicated(
        path, ServeSettings(generation_defaults=False), lambda: LocalReplicas(opened)
    )
    with plain:
        assert plain.defaults == {}


def test_what_is_no_artifact_starts_nothing(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError):
        replicated(tmp_path / "none", SETTINGS, nothing)


def test_what_writes_no_text_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = SimpleNamespace(task=SimpleNamespace(face="tensors"))
    monkeypatch.setattr(Artifact, "open", lambda *given: SimpleNamespace(manifest=manifest))
    with pytest.raises(InputError, match="writes no text") as it:
        replicated(tmp_path, SETTINGS, nothing)
    assert it.value.hint == "serve it without replicas"
