"""docs/how-to/sign-and-trace.md: its commands and its Python run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.artifact.trust.keys import write_keys
from tests.cli.conftest import Optc
from tests.how_to.console import run_page


def test_the_page_runs(optc: Optc, long_talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_keys(long_talker)
    assert run_page("sign-and-trace", optc, long_talker, monkeypatch) == 5
