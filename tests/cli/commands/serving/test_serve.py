"""Options of ``optc serve``, before anything is loaded."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from optc.cli.options import add_options, stated
from optc.runtime.settings import ServeSettings
from tests.cli.conftest import Optc


def test_without_its_packages(optc: Optc, talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("optc.serve")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("starlette", "uvicorn", "prometheus_client"):
        monkeypatch.setitem(sys.modules, name, None)
    outcome = optc("serve", talker)
    assert outcome.code == 3
    assert "pip install 'optc[serve]'" in outcome.err


@pytest.mark.parametrize(
    ("name", "served"),
    [
        ("serving.serve", "SERVED"),
        ("serving.dynamo_worker", "_SERVED"),
        ("serving.replay", "_SERVED"),
        ("run", "_SERVED"),
        ("chat", "_SERVED"),
    ],
)
def test_settings_that_nobody_states_are_those_of_a_load(name: str, served: str) -> None:
    names = getattr(import_module(f"optc.cli.commands.{name}"), served)
    given: dict[str, Any] = {}

    @click.command()
    @add_options(ServeSettings, *names)
    def command(**options: Any) -> None:
        given.update(options)

    command.main([], standalone_mode=False)
    assert given.keys() == set(names)
    assert ServeSettings(**stated(given, names)) == ServeSettings()
    assert given == {}


def test_without_the_packages_of_spans(
    optc: Optc, talker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("starlette", reason="the extra 'serve' is not installed")
    for name in [one for one in sys.modules if one.startswith("optc.serve.tracing")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("opentelemetry.sdk.trace", "opentelemetry.sdk.resources"):
        monkeypatch.setitem(sys.modules, name, None)
    outcome = optc("serve", talker, "--otel", "--port", "0")
    assert outcome.code == 3
    assert "pip install 'optc[otel]'" in outcome.err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ((), 2, "Missing argument 'ARTIFACT...'"),
        (("--port", "70000"), 2, "70000"),
        (("--metrics-prefix", "a b"), 2, "no beginning of a metric's name"),
        (("--model-name", "a", "--model-name", "b"), 2, "2 names for 1 artifacts"),
        (("--host", "no such host", "--port", "0"), 2, "cannot listen at no such host"),
        (("--api-key-file", "none"), 2, "--api-key-file"),
        (("--admin-key-file", "none"), 2, "--admin-key-file"),
        (("--admin-folder", "."), 2, "--admin-folder: changes nothing without an admin key"),
        (("--semantic-cache", "minilm"), 2, "'minilm' is no MODEL=COSINE"),
        (("--semantic-cache", "minilm=nan"), 2, "'minilm=nan' is no MODEL=COSINE"),
    ],
)
def test_wrong_options(
    optc: Optc, talker: Path, options: tuple[str, ...], code: int, message: str
) -> None:
    pytest.importorskip("starlette", reason="the extra 'serve' is not installed")
    outcome = optc("serve", *([talker] if options else []), *options)
    assert outcome.code == code
    assert message in outcome.err


def test_a_key_is_for_one_thing(optc: Optc, talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("starlette", reason="the extra 'serve' is not installed")
    monkeypatch.setenv("OPTC_API_KEY", "sk-a sk-b")
    monkeypatch.setenv("OPTC_ADMIN_KEY", "sk-b")
    outcome = optc("serve", talker)
    assert outcome.code == 2
    assert "a key of requests is a key of admin routes, too" in outcome.err


def test_an_open_door_is_named(optc: Optc, talker: Path) -> None:
    pytest.importorskip("starlette", reason="the extra 'serve' is not installed")
    outcome = optc("serve", talker, "--host", "192.0.2.1", "--port", "0")  # an address of nobody
    assert "everybody who reaches 192.0.2.1 may ask" in outcome.err
    assert "cannot listen at 192.0.2.1" in outcome.err
