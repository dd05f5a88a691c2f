"""Push and pull, to layouts and to a stand-in of a registry."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.artifact import Artifact
from optc.artifact.store.oci import transfer
from optc.artifact.store.oci.layout import Layout
from optc.artifact.store.oci.manifest import digest_of
from optc.artifact.store.oci.place import Place
from optc.artifact.store.oci.reference import parse_reference
from optc.artifact.store.oci.transfer import open_place, pull, push
from optc.errors import ArtifactError, InputError, UnavailableError
from tests.artifact.store.registry import NAME, PASSWORD, StandIn, running
from tests.artifact.toy import write_toy


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("no_proxy", "*")
    with running() as found:
        yield found


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return write_toy(tmp_path / "a")


def place_of(text: str) -> Place:
    return open_place(parse_reference(text, "x"), plain_http=True)


@pytest.fixture(params=["layout", "registry"])
def text(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A reference of either kind."""
    if request.param == "layout":
        return f"oci:{tmp_path / 'layout'}:v1"
    host = request.getfixturevalue("registry").host
    return f"{host}/me/model:v1"


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_was_pushed_is_pulled(artifact: Artifact, text: str, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    done = push(artifact, place_of(text), lambda *told: seen.append(told))
    assert (done.files, done.moved) == (9, done.bytes)
    assert seen[-1] == ("push", done.bytes, done.bytes)
    back = pull(place_of(text), tmp_path / "back", text)
    assert contents(tmp_path / "back") == contents(artifact.path)
    assert back.artifact.digest == artifact.digest
    assert back.oci_digest == done.oci_digest
    libraries = [
        tmp_path / "back/engines/target" / name for name in ("engine.so", "libtvm_runtime.so")
    ]
    assert libraries[0].samefile(libraries[1])
    named = text.rsplit(":", 1)[0] + f"@{done.oci_digest}"
    assert pull(place_of(named), tmp_path / "by-digest", named).artifact.digest == artifact.digest


def test_a_pushed_artifact_has_the_config_that_its_manifest_names(
    artifact: Artifact, tmp_path: Path
) -> None:
    push(artifact, place_of(f"oci:{tmp_path / 'layout'}:v1"))
    named = digest_of(b"{}").removeprefix("sha256:")
    assert (tmp_path / "layout/blobs/sha256" / named).read_bytes() == b"{}"


def test_a_blob_that_is_wanted_again_is_young(artifact: Artifact, tmp_path: Path) -> None:
    text = f"oci:{tmp_path / 'layout'}:v1"
    push(artifact, place_of(text))
    blobs = list((tmp_path / "layout/blobs/sha256").iterdir())
    for blob in blobs:
        os.utime(blob, (1, 1))
    push(artifact, place_of(text))
    assert min(blob.stat().st_mtime for blob in blobs) > 1, "pruning would take it"


def test_what_is_there_is_not_sent_again(artifact: Artifact, text: str) -> None:
    push(artifact, place_of(text))
    again = push(artifact, place_of(text))
    assert again.moved == 0
    (artifact.path / "report.json").write_text('{"a": 1}')
    assert push(artifact, place_of(text)).moved == 8


def test_a_tag_that_there_is_not(artifact: Artifact, text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds nothing called 'v1'|has no such repository"):
        pull(place_of(text), tmp_path / "back", text)
    push(artifact, place_of(text))
    other = text.replace(":v1", ":v2")
    with pytest.raises(InputError, match=r"nothing called 'v2' \(there are v1\)|no such artifact"):
        pull(place_of(other), tmp_path / "back", other)
    assert not (tmp_path / "back").exists()


def test_an_output_that_is_there_stays(artifact: Artifact, text: str, tmp_path: Path) -> None:
    push(artifact, place_of(text))
    with pytest.raises(InputError, match="already exists"):
        pull(place_of(text), artifact.path, text)
    (artifact.path / "report.json").write_text("{}")
    pull(place_of(text), artifact.path, text, force=True)
    assert json.loads((artifact.path / "report.json").read_text()) == {"seconds": 1.5}


def test_several_tags_of_a_layout(artifact: Artifact, tmp_path: Path) -> None:
    layout = tmp_path / "layout"
    for tag in ("v1", "v2", "v1"):
        push(artifact, place_of(f"oci:{layout}:{tag}"))
    index = json.loads((layout / "index.json").read_text())
    tags = [one["annotations"]["org.opencontainers.image.ref.name"] for one in index["manifests"]]
    assert tags == ["v2", "v1"]
    assert index["schemaVersion"] == 2
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    assert [p.name for p in layout.rglob(".*")] == []


def _spoil(layout: Path, artifact: Artifact) -> Path:
    """Change a byte of the weights' blob."""
    entry = next(e for e in artifact.manifest.files if e.path.endswith("weights.bin"))
    path = layout / "blobs/sha256" / entry.sha256
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    return path


def test_a_damaged_blob_is_not_pulled(artifact: Artifact, tmp_path: Path) -> None:
    text = f"oci:{tmp_path / 'layout'}"
    push(artifact, place_of(text))
    path = _spoil(tmp_path / "layout", artifact)
    with pytest.raises(ArtifactError, match=r"has other bytes of 'engines/target/weights\.bin'"):
        pull(place_of(text), tmp_path / "back", text)
    assert not (tmp_path / "back").exists()
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(ArtifactError, match="has other bytes"):
        pull(place_of(text), tmp_path / "back", text)
    path.unlink()
    with pytest.raises(InputError, match="cannot be read: No such file"):
        pull(place_of(text), tmp_path / "back", text)
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".back")] == []


def test_a_damaged_blob_is_repaired_by_a_push(artifact: Artifact, tmp_path: Path) -> None:
    text = f"oci:{tmp_path / 'layout'}"
    push(artifact, place_of(text))
    path = _spoil(tmp_path / "layout", artifact)
    with pytest.raises(ArtifactError) as raised:
        pull(place_of(text), tmp_path / "back", text)
    assert "optc push rewrites" in raised.value.hint
    assert push(artifact, place_of(text)).moved == path.stat().st_size
    assert pull(place_of(text), tmp_path / "back", text).artifact.digest == artifact.digest


def test_damaged_layouts(artifact: Artifact, tmp_path: Path) -> None:
    text = f"oci:{tmp_path / 'layout'}"
    done = push(artifact, place_of(text))
    manifest = tmp_path / "layout/blobs/sha256" / done.oci_digest.removeprefix("sha256:")
    manifest.write_bytes(manifest.read_bytes() + b" ")
    with pytest.raises(InputError, match="has other bytes than its digest says"):
        pull(place_of(text), tmp_path / "back", text)
    index = tmp_path / "layout/index.json"
    value = json.loads(index.read_text())
    value["manifests"][0]["digest"] = "sha256:../../../x"
    index.write_text(json.dumps(value))
    with pytest.raises(InputError, match="is no sha256 digest"):
        pull(place_of(text), tmp_path / "back", text)
    index.write_text("{")
    with pytest.raises(ArtifactError, match=r"index\.json: is not JSON"):
        pull(place_of(text), tmp_path / "back", text)


def test_a_folder_that_is_a_file(artifact: Artifact, tmp_path: Path) -> None:
    (tmp_path / "layout").write_text("x")
    with pytest.raises(InputError, match="layout: cannot be written: "):
        push(artifact, place_of(f"oci:{tmp_path / 'layout'}"))


def test_without_hard_links_a_blob_is_fetched_twice(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"oci:{tmp_path / 'layout'}"
    push(artifact, place_of(text))
    monkeypatch.setattr(transfer, "_linked", lambda path, known: False)
    pull(place_of(text), tmp_path / "back", text)
    assert contents(tmp_path / "back") == contents(artifact.path)


def test_equal_places() -> None:
    assert isinstance(place_of("oci:x"), Layout)


def log_in(tmp_path: Path, host: str, **more: object) -> None:
    """As ``docker login`` does."""
    (tmp_path / "docker").mkdir(exist_ok=True)
    auth = base64.b64encode(f"{NAME}:{PASSWORD}".encode()).decode()
    value = {"auths": {host: {"auth": auth}}, **more}
    (tmp_path / "docker/config.json").write_text(json.dumps(value))


def test_a_registry_that_wants_a_token(
    artifact: Artifact, registry: StandIn, tmp_path: Path
) -> None:
    registry.bearer = registry.redirects = True
    text = f"{registry.host}/me/model"
    with pytest.raises(InputError, match=r"refuses: HTTP 401 \(docker login 127"):
        push(artifact, place_of(text))
    log_in(tmp_path, registry.host)
    push(artifact, place_of(text))
    assert pull(place_of(text), tmp_path / "back", text).artifact.digest == artifact.digest


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "cannot be used"),
        ("[]", "cannot be used"),
        ('{"auths": {"HOST": {"auth": "?"}}}', "cannot be used"),
        ('{"auths": {"HOST": {}}, "credsStore": "desktop"}', "keeps the password of 127"),
    ],
)
def test_passwords_that_cannot_be_read(
    artifact: Artifact, registry: StandIn, tmp_path: Path, config: str, message: str
) -> None:
    registry.bearer = True
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/config.json").write_text(config.replace("HOST", registry.host))
    with pytest.raises(InputError, match=message):
        push(artifact, place_of(f"{registry.host}/me/model"))


def test_a_registry_that_lies(artifact: Artifact, registry: StandIn, tmp_path: Path) -> None:
    text = f"{registry.host}/me/model"
    done = push(artifact, place_of(text))
    named = f"{text}@{done.oci_digest}"
    registry.manifests["me/model", done.oci_digest] += b" "
    with pytest.raises(InputError, match="another manifest than the digest names"):
        pull(place_of(named), tmp_path / "back", named)
    weights = next(e for e in artifact.manifest.files if e.path.endswith("weights.bin"))
    registry.blobs[f"sha256:{weights.sha256}"] = bytes(weights.bytes)
    with pytest.raises(ArtifactError, match=r"has other bytes of 'engines/target/weights\.bin'"):
        pull(place_of(text), tmp_path / "back", text)
    registry.manifests["me/model", "latest"] = b" " * (5 << 20)
    with pytest.raises(InputError, match="the manifest is too large"):
        pull(place_of(text), tmp_path / "back", text)
    assert not (tmp_path / "back").exists()
    assert digest_of(b"{}").startswith("sha256:44136fa3")


def test_no_registry(artifact: Artifact, registry: StandIn) -> None:
    port = registry.host.rpartition(":")[2]
    with pytest.raises(UnavailableError, match=r"cannot be reached: .*plain-http"):
        push(artifact, open_place(parse_reference(f"127.0.0.1:{port}/me/model", "x")))


def test_two_pushes_at_once_lose_no_tag(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes while another has read the index, and not written it yet."""
    folder = tmp_path / "layout"
    push(artifact, place_of(f"oci:{folder}:v0"))
    write = Layout._write_index
    others: list[threading.Thread] = []

    def slow(self: Layout, entries: list[dict[str, Any]]) -> None:
        if not others:
            others.append(
                threading.Thread(target=push, args=(artifact, place_of(f"oci:{folder}:v2")))
            )
            others[0].start()
            others[0].join(0.2)  # it waits for this one, or has written
        write(self, entries)

    monkeypatch.setattr(Layout, "_write_index", slow)
    push(artifact, place_of(f"oci:{folder}:v1"))
    others[0].join()
    tags = {one.tag for one in place_of(f"oci:{folder}").tagged()}
    assert tags == {"v0", "v1", "v2"}
