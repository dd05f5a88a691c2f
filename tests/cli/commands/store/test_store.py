"""optc list, rm, push and pull, and names in the place of paths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.artifact.toy import write_toy
from tests.cli.conftest import Optc
from tests.store.registry import StandIn, running


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPTC_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "store"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("no_proxy", "*")
    with running() as found:
        yield found


def test_list(optc: Optc, store: Path) -> None:
    empty = optc("list")
    assert (
        empty.out
        == f"no artifacts in {store} (optc compile writes there, OPTC_STORE names another)\n"
    )
    made = write_toy(store / "pycode-fp32")
    (store / "torn").mkdir()
    (store / "torn/manifest.json").write_text("{")
    value = optc("list", "--json").json
    good, torn = value["artifacts"]
    assert value["store"] == str(store)
    assert good == {
        "name": "pycode-fp32",
        "path": str(made.path),
        "digest": made.digest,
        "model": "toy",
        "recipe": "fp32",
        "bytes": 10291,
        "engines": ["target"],
        "signed": False,
        "problem": "",
    }
    assert (torn["digest"], torn["engines"]) == (None, [])
    shown = optc("list").out
    assert "tvm x86-64-v3" in shown
    assert "damaged: is not JSON" in shown


def test_names_beside_paths(optc: Optc, store: Path) -> None:
    made = write_toy(store / "model")
    assert optc("verify", "model", "--json").json["digest"] == made.digest
    assert optc("inspect", "model", "--json").json["artifact"] == str(made.path)
    assert optc("diff", "model", made.path, "--json").json["same"] is True
    absent = optc("verify", "modl")
    assert (absent.code, "modl: no such artifact" in absent.err) == (2, True)


def test_rm(optc: Optc, store: Path, tmp_path: Path) -> None:
    write_toy(store / "a")
    write_toy(store / "b")
    write_toy(tmp_path / "c")
    (tmp_path / "notes").mkdir()
    outcome = optc("rm", "a", tmp_path / "c", "notes", "b")
    assert outcome.code == 2
    assert "notes: is no artifact; nothing is removed" in outcome.err
    assert f"removed {store / 'a'}: " in outcome.out
    assert sorted(path.name for path in store.iterdir()) == ["b"]
    assert not (tmp_path / "c").exists()
    value = optc("rm", "b", "--json").json
    assert value["removed"][0]["path"] == str(store / "b")
    assert value["removed"][0]["bytes"] > 10_000


def test_push_and_pull(optc: Optc, store: Path, registry: StandIn, tmp_path: Path) -> None:
    made = write_toy(store / "model")
    reference = f"{registry.host}/me/model:v1"
    sent = optc("push", "model", reference, "--plain-http", "--json").json
    assert (sent["digest"], sent["files"]) == (made.digest, 9)
    assert sent["moved_bytes"] == sent["bytes"]
    assert "0 B were not there yet" in optc("push", "model", reference, "--plain-http").out
    got = optc("pull", reference, "--plain-http", "--json").json
    assert (got["artifact"], got["digest"]) == (str(store / "model-v1"), made.digest)
    assert got["oci_digest"] == sent["oci_digest"]
    again = optc("pull", reference, "--plain-http")
    assert (again.code, "already exists" in again.err) == (2, True)
    assert optc("pull", reference, "--plain-http", "--force").code == 0
    named = optc("pull", reference, "--plain-http", "--name", "other")
    assert named.out.startswith(f"{store / 'other'}: 9 files")
    elsewhere = tmp_path / "x/y"
    assert optc("pull", reference, "--plain-http", "-o", elsewhere).code == 0
    assert optc("verify", elsewhere).code == 0


def test_a_damaged_artifact_is_not_pushed(optc: Optc, store: Path, tmp_path: Path) -> None:
    made = write_toy(store / "model")
    weights = made.path / "engines/target/weights.bin"
    weights.write_bytes(b"\xff" + weights.read_bytes()[1:])
    outcome = optc("push", "model", f"oci:{tmp_path / 'layout'}")
    assert (outcome.code, "the file is corrupted" in outcome.err) == (5, True)
    assert not (tmp_path / "layout").exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("push", "model", "pycode"), "REFERENCE: 'pycode' names no layout or registry"),
        (("pull", "pycode"), "REFERENCE: 'pycode' names no layout or registry"),
        (("pull", "oci:absent"), "absent: holds nothing called 'latest'"),
        (("pull", "oci:x", "--name", "a/b"), "--name: 'a/b' is no name"),
        (("pull", "oci:x", "--name", "a", "-o", "b"), "give either --output or --name"),
        (("push", "absent", "oci:x"), "absent: no such artifact"),
        (("rm",), "Missing argument 'ARTIFACTS...'"),
    ],
)
def test_what_is_wrong(optc: Optc, store: Path, call: tuple[str, ...], message: str) -> None:
    write_toy(store / "model")
    outcome = optc(*call)
    assert outcome.code == 2
    assert message in outcome.err
