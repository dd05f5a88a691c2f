"""An artifact is measured once."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc import registry
from optc.proof.simulate import service, stopwatch
from optc.proof.simulate.artifact_times import artifact_step_times
from optc.runtime.speculative.planning.costs_cache import CostsCache
from tests.runtime.support.artifacts import ToyBackend, write_artifact


def test_times_are_measured_once_and_again_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = ToyBackend()
    monkeypatch.setattr(registry, "backend", lambda name: backend)
    monkeypatch.setattr(stopwatch, "_TURN_S", 0.0)
    monkeypatch.setattr(service, "_DECODE_S", 0.0)
    monkeypatch.setattr(service, "_MIXED_S", 0.0)
    monkeypatch.setattr(service, "_ARRIVALS", 2)
    artifact = write_artifact(tmp_path / "a")
    cache = CostsCache(tmp_path / "cache")
    first = artifact_step_times(artifact, 1, cache=cache)
    assert artifact_step_times(artifact, 1, cache=cache) == first
    assert len(backend.calls) == 2  # step by step, and served
    artifact_step_times(artifact, 2, cache=cache)
    artifact_step_times(artifact, 1, cache=cache, again=True)
    assert [threads for _, _, threads in backend.calls] == [1, 1, 2, 2, 1, 1]
