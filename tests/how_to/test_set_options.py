"""docs/how-to/set-options.md: its commands and its Python run as they stand."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from optc import registry
from tests.cli.conftest import Optc
from tests.how_to.console import run_page
from tests.support.stub import StubBackend


@pytest.fixture
def kept_log() -> Iterator[None]:
    """The page's Python changes what the program logs; undone here."""
    roots = [logging.getLogger(), logging.getLogger("optc")]
    kept = [(root, root.handlers[:], root.level) for root in roots]
    yield
    for root, handlers, level in kept:
        root.handlers[:] = handlers
        root.setLevel(level)


def test_the_page_runs(
    optc: Optc,
    long_talker: Path,
    quick_import: None,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept_log: None,
) -> None:
    (long_talker / "tiny").symlink_to(tiny_model)
    toy, stub = registry.backend("toy"), StubBackend()
    found = {"toy": toy, "tvm": stub}
    monkeypatch.setattr(registry, "backend_names", lambda: tuple(found))
    monkeypatch.setattr(registry, "backend", found.__getitem__)
    assert run_page("set-options", optc, long_talker, monkeypatch) == 9
    assert [options.max_context for _, options in stub.built] == [32, 48]
    lines = (long_talker / "optc.log").read_text("utf-8").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} [A-Z]+ optc\.", x) for x in lines)
    assert "INFO optc.runtime.loader: loaded <optc.Engine" in lines[0]
    assert "DEBUG optc.runtime.requests.input_processor: a request of 9 tokens" in lines[1]
    assert "ERROR optc.cli: absent: no such artifact" in lines[-1]
