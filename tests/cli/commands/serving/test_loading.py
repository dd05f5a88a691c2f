"""Replicas of ``optc serve``, before any of them is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra 'serve' is not installed")

from tests.cli.conftest import Optc


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ray", "2"), "--ray: '2' says not what the replicas are"),
        (("--ray", "replicas=0"), "at least 1 replica"),
        (
            ("--ray", "replicas=2", "--kv-events", "tcp://*:1"),
            "--kv-events: does not go with --ray",
        ),
        (("--ray", "replicas=2", "--sleep-after", "9"), "--sleep-after: does not go with --ray"),
    ],
)
def test_what_does_not_go(optc: Optc, talker: Path, options: tuple[str, ...], message: str) -> None:
    outcome = optc("serve", talker, "--port", "0", *options)
    assert outcome.code == 2
    assert message in outcome.err


def test_a_replica_fits_on_the_machine(
    optc: Optc, talker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray.serve", reason="the extra 'ray' is not installed")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    outcome = optc("serve", talker, "--ray", "replicas=2,cpus=3")
    assert outcome.code == 2
    assert "3 CPUs for a replica on a machine with 2" in outcome.err


def test_models_are_given_at_the_start(
    optc: Optc, talker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTC_ADMIN_KEY", "sk-admin")
    outcome = optc("serve", talker, "--ray", "replicas=2", "--admin-folder", tmp_path)
    assert outcome.code == 2
    assert "--admin-folder: does not go with --ray" in outcome.err


def test_without_ray(optc: Optc, talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [one for one in sys.modules if one.startswith(("ray.", "optc.serve.on_ray"))]
    for name in modules:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    outcome = optc("serve", talker, "--ray", "replicas=2")
    assert outcome.code == 3
    assert "the package 'ray' is not installed" in outcome.err
    assert "pip install 'optc[ray]'" in outcome.err
