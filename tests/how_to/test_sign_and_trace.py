"""docs/how-to/sign-and-trace.md: its commands and its Python run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Optc
from tests.how_to.support.console import installed, run_page


def test_the_page_runs(optc: Optc, long_talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")
    programs = {"openssl": installed, "model_signing": installed}
    assert run_page("sign-and-trace", optc, long_talker, monkeypatch, programs) == 8
    assert (long_talker / "key.pem").stat().st_mode & 0o77 == 0
