"""``optc dynamo-worker``: what it says where Dynamo is not; tests/serve/on_dynamo has the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("uvicorn", reason="the extra 'serve' is not installed")

from optc.cli.commands.serving.dynamo_worker import _published, command
from optc.errors import UnavailableError
from optc.runtime.settings import ServeSettings
from tests.runtime.support.artifacts import write_artifact


def test_without_dynamo_it_says_where_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = write_artifact(tmp_path / "toy").path
    monkeypatch.setitem(sys.modules, "dynamo", None)
    result = CliRunner().invoke(command, [str(artifact)])
    assert isinstance(result.exception, UnavailableError)
    assert "serve-behind-dynamo" in str(result.exception)


def test_events_have_an_address_that_the_worker_reaches() -> None:
    settings, address = _published(ServeSettings())
    assert settings.kv_events == address
    assert address.startswith("tcp://127.0.0.1:")
    stated = ServeSettings(kv_events="tcp://*:5557,topic=kv")
    assert _published(stated) == (stated, "tcp://127.0.0.1:5557")
