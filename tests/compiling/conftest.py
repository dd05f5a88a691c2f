from __future__ import annotations

import pytest

from optc import registry
from tests.support.stub import AheadOfTime, StubBackend


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> dict[str, StubBackend]:
    """All backends there are: one for the CPU that shares weights, one for GPUs that does not."""
    found = {"tvm": StubBackend("tvm", 20), "aot": AheadOfTime("aot", 30)}
    monkeypatch.setattr(registry, "backend_names", lambda: tuple(sorted(found)))
    monkeypatch.setattr(registry, "backend", found.__getitem__)
    return found
