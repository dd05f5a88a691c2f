"""optc list, rm, push and pull, and names in the place of paths."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.manifest import short_digest
from tests.artifact.store.registry import StandIn, running
from tests.artifact.toy import write_toy
from tests.cli.conftest import Optc


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
    os.utime(made.path / "manifest.json", (1795867200, 1795867200))
    (store / "torn").mkdir()
    (store / "torn/manifest.json").write_text("{")
    value = optc("list", "--json").json
    good, torn = value["artifacts"]
    assert value["store"] == str(store)
    assert good == {
        "name": "pycode-fp32",
        "path": str(made.path),
        "written": "2026-11-28T12:00:00+00:00",
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
    assert "2026-11-28 " in shown
    assert "damaged: is not JSON" in shown
    assert short_digest(made.digest) in shown.split()


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
    said = optc("push", "model", reference, "--plain-http").out
    assert "0 B were not there yet" in said
    assert f"OCI digest {sent['oci_digest']}\n" in said
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
        (("list", "oci:absent"), "absent: is no layout (optc push ARTIFACT oci:FOLDER)"),
        (("untag", "oci:absent:v1"), "absent: holds nothing called 'v1'"),
        (("tag", "oci:absent:v1", "v2"), "absent: holds nothing called 'v1'"),
        (("tag", "oci:x", "a/b"), "TAG: 'a/b' is no tag"),
        (("prune", "oci:absent"), "absent: is no layout"),
        (("prune", "ghcr.io/me/x"), "ghcr.io/me/x: is no layout (oci:FOLDER; registries collect"),
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


def tags(value: dict[str, Any]) -> dict[str, str]:
    return {one["tag"]: one["oci_digest"] for one in value["tags"]}


@pytest.mark.parametrize("kind", ["layout", "registry"])
def test_tags_are_given_listed_and_taken(
    optc: Optc, store: Path, registry: StandIn, tmp_path: Path, kind: str
) -> None:
    made = write_toy(store / "model")
    place = f"oci:{tmp_path / 'shared'}" if kind == "layout" else f"{registry.host}/me/model"
    plain = () if kind == "layout" else ("--plain-http",)
    digests = {}
    for tag in ("v1", "v2", "v3"):
        digests[tag] = optc("push", "model", f"{place}:{tag}", *plain, "--json").json["oci_digest"]
        (made.path / "report.json").write_text(f'{{"of": "{tag}"}}')
    assert len(set(digests.values())) == 3
    promoted = optc("tag", f"{place}:v1", "production", *plain, "--json").json
    assert promoted == promoted | {
        "reference": f"{place}:production",
        "oci_digest": digests["v1"],
    }
    by_digest = optc("tag", f"{place}@{digests['v2']}", "production", *plain)
    assert by_digest.out == f"{place}:production: {digests['v2']}\n"
    found = optc("list", place, *plain, "--json").json
    assert tags(found) == digests | {"production": digests["v2"]}
    assert {(one["model"], one["digest"]) for one in found["tags"]} == {("toy", made.digest)}
    assert all(one["bytes"] > 10_000 for one in found["tags"])
    shown = optc("list", place, *plain).out.split()
    assert {"production", short_digest(made.digest)} <= set(shown)
    assert optc("untag", f"{place}:v1", *plain).code == 0
    assert sorted(tags(optc("list", place, *plain, "--json").json)) == ["production", "v2", "v3"]
    for call in (("pull", f"{place}:v1", *plain), ("untag", f"{place}:nope", *plain)):
        outcome = optc(*call)
        assert outcome.code == 2
        assert "nothing called" in outcome.err
        assert "there are " in outcome.err
        assert all(tag in outcome.err for tag in ("production", "v2", "v3"))


def test_prune_removes_what_no_tag_needs(optc: Optc, store: Path, tmp_path: Path) -> None:
    made = write_toy(store / "model")
    place, blobs = f"oci:{tmp_path / 'shared'}", tmp_path / "shared/blobs/sha256"
    optc("push", "model", f"{place}:v1")
    first = {path.name for path in blobs.iterdir()}
    (made.path / "report.json").write_text('{"of": "v2"}')
    optc("push", "model", f"{place}:v2")
    both = {path.name for path in blobs.iterdir()}
    foreign = tmp_path / "shared/index.json"
    assert optc("prune", place, "--min-age", "0", "--json").json["blobs"] == 0
    optc("untag", f"{place}:v1")
    assert optc("prune", place, "--json").json["blobs"] == 0, "they are young"
    dry = optc("prune", place, "--min-age", "0", "--dry-run")
    assert dry.out.startswith(f"{tmp_path / 'shared'}: would remove 2 blobs of ")
    assert {path.name for path in blobs.iterdir()} == both
    (blobs / ".x.partial-1").write_text("torn")
    done = optc("prune", place, "--min-age", "0", "--json").json
    assert (done["blobs"], done["kept"], done["dry_run"]) == (3, len(both) - 2, False)
    assert optc("pull", f"{place}:v2", "--name", "again").code == 0
    assert first - {path.name for path in blobs.iterdir()}
    assert foreign.is_file()


def test_prune_leaves_what_other_tools_put_there(optc: Optc, store: Path, tmp_path: Path) -> None:
    """An index of indexes, as of images for several machines."""
    write_toy(store / "model")
    folder = tmp_path / "shared"
    optc("push", "model", f"oci:{folder}:v1")

    def blob(value: object) -> dict[str, Any]:
        data = json.dumps(value).encode()
        digest = hashlib.sha256(data).hexdigest()
        (folder / "blobs/sha256" / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    layer, config = blob("layer"), blob({"os": "linux"})
    image = {"mediaType": "application/vnd.oci.image.manifest.v1+json"} | blob(
        {"config": config, "layers": [layer]}
    )
    index = {"mediaType": "application/vnd.oci.image.index.v1+json"} | blob({"manifests": [image]})
    lost = blob("lost")
    whole = json.loads((folder / "index.json").read_text())
    whole["manifests"].append(index)
    (folder / "index.json").write_text(json.dumps(whole))
    assert optc("prune", f"oci:{folder}", "--min-age", "0", "--json").json["blobs"] == 1
    left = {f"sha256:{path.name}" for path in (folder / "blobs/sha256").iterdir()}
    assert left >= {one["digest"] for one in (layer, config, image, index)}
    assert lost["digest"] not in left
    listed = optc("list", f"oci:{folder}", "--json").json["tags"]
    assert [one["tag"] for one in listed] == ["v1", ""]
    assert listed[1]["model"] is None


def test_a_repository_that_is_not_there_says_so(optc: Optc, store: Path, registry: StandIn) -> None:
    outcome = optc("pull", f"{registry.host}/me/absent:v1", "--plain-http")
    assert (outcome.code, "the registry has no such repository" in outcome.err) == (2, True)


def test_a_registry_that_is_not_reached_says_what_to_do(optc: Optc, registry: StandIn) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    refused = optc("pull", f"127.0.0.1:{port}/me/x")
    assert refused.code == 3
    assert "nothing listens there: does the registry run, and is the port right?" in refused.err
    without_tls = optc("pull", f"{registry.host}/me/x")
    assert "--plain-http for a registry without TLS" in without_tls.err
    unknown = optc("pull", "no-such-host.invalid/me/x")
    assert "no host has this name, or there is no network" in unknown.err
