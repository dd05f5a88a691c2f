"""OCI manifests of artifacts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.store.oci.manifest import (
    described,
    files_of,
    read_manifest_files,
    write_manifest,
)
from optc.errors import ArtifactError
from tests.artifact.toy import write_toy


def test_every_file_is_a_layer_with_its_path(tmp_path: Path) -> None:
    artifact = write_toy(tmp_path / "a")
    files = files_of(artifact)
    data = write_manifest(artifact, files)
    assert write_manifest(artifact, files_of(artifact)) == data
    value = json.loads(data)
    assert value["schemaVersion"] == 2, "the specification takes no other"
    assert value["artifactType"] == "application/vnd.optc.artifact.v1"
    assert value["config"]["digest"] == f"sha256:{hashlib.sha256(b'{}').hexdigest()}"
    assert value["annotations"]["dev.optc.digest"] == artifact.digest
    titles = {one["annotations"]["org.opencontainers.image.title"] for one in value["layers"]}
    present = {p.relative_to(artifact.path).as_posix() for p in artifact.path.rglob("*.*")}
    assert titles == present
    assert {"manifest.json", "report.json", "provenance.json", "sbom.cdx.json"} < titles
    for blob in read_manifest_files(data, "x"):
        content = (artifact.path / blob.title).read_bytes()
        assert (len(content), f"sha256:{hashlib.sha256(content).hexdigest()}") == (
            blob.size,
            blob.digest,
        )


def layer(title: Any = "manifest.json", **more: Any) -> dict[str, Any]:
    annotations = {"org.opencontainers.image.title": title}
    return {"digest": f"sha256:{'ab' * 32}", "size": 3, "annotations": annotations, **more}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "expected 'object', got 'array'"),
        ({}, "missing required field 'layers'"),
        ({"layers": []}, "is no artifact of optc: it holds no manifest.json"),
        ({"layers": [layer("config.json")]}, "is no artifact of optc"),
        ({"layers": [layer(), layer()]}, "it lists 'manifest.json' twice"),
        (
            {"layers": [layer(digest="md5:ab")]},
            r"digest: expected text that matches sha256",
        ),
        ({"layers": [layer(size=-1)]}, r"layers\[0\].size: expected 'int' >= 0"),
        ({"layers": [layer(3)]}, "title: expected 'str', got 'int'"),
        *(
            ({"layers": [layer(), *map(layer, titles)]}, "it lists 'a/b' as a file and as a fol")
            for titles in (("a/b", "a/b/c"), ("a/b/c", "a/b"), ("a/b/c/d/e", "x", "a/b"))
        ),
        *(
            ({"layers": [layer(), layer(title)]}, "is no path of a file in an artifact")
            for title in ("", ".", "..", "/etc/passwd", "../x", "a/../../x", "a\\b", "a//b", "a/")
        ),
    ],
)
def test_other_manifests_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        read_manifest_files(json.dumps(value).encode(), "x")


@pytest.mark.parametrize("letter", ["a", "é", "🙂"])
def test_names_are_as_long_as_file_systems_take(letter: str, tmp_path: Path) -> None:
    whole, rest = divmod(255, len(letter.encode()))
    longest = letter * whole + "b" * rest
    (tmp_path / longest).write_text("")  # this file system takes as many bytes
    titles = (longest, f"x/{longest}", f"{longest}/x", longest + "c", f"{longest}c/x")
    for title in titles:
        data = json.dumps({"layers": [layer(), layer(title)]}).encode()
        if longest + "c" not in title:
            assert [one.title for one in read_manifest_files(data, "x")][1] == title
            continue
        with pytest.raises(ArtifactError, match="is no path of a file in an artifact"):
            read_manifest_files(data, "x")


def test_paths_are_of_a_thousand_characters() -> None:
    for length, taken in ((1020, True), (1021, False)):
        title = ("a" * 99 + "/") * 10 + "b" * (length - 1000)
        data = json.dumps({"layers": [layer(), layer(title)]}).encode()
        if taken:
            assert len(read_manifest_files(data, "x")) == 2
            continue
        with pytest.raises(ArtifactError, match="is no path of a file in an artifact"):
            read_manifest_files(data, "x")


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(ArtifactError, match="x: the OCI manifest is not usable as JSON"):
        read_manifest_files(b"{", "x")


def test_a_manifest_of_four_mebibytes_is_read_and_no_larger_one() -> None:
    """Registries must take as much, and need not take more."""
    data = json.dumps({"layers": [layer()]}).encode()
    (blob,) = read_manifest_files(data.ljust(4 << 20), "x")
    assert (blob.title, blob.size) == ("manifest.json", 3)
    with pytest.raises(ArtifactError, match="is not usable as JSON"):
        read_manifest_files(data.ljust((4 << 20) + 1), "x")


NOTHING = {"model": None, "digest": None, "bytes": None}


def test_what_a_manifest_says_of_its_artifact(tmp_path: Path) -> None:
    artifact = write_toy(tmp_path / "a")
    files = files_of(artifact)
    sizes = {blob.digest: blob.size for blob in files}
    assert described(write_manifest(artifact, files)) == {
        "model": "toy",
        "digest": artifact.digest,
        "bytes": sum(sizes.values()),
    }
    assert len(sizes) < len(files), "two are alike, and there once"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"artifactType": "of.another/tool", "layers": [layer()]}, NOTHING),
        ([], NOTHING),
        ({"annotations": 7, "layers": 7}, NOTHING),
        ({"annotations": {"dev.optc.digest": 7}}, NOTHING),
        ({"layers": [layer(), 7, None, {"digest": "x", "size": "3"}]}, NOTHING | {"bytes": 3}),
        ({"layers": []}, NOTHING | {"bytes": 0}),
    ],
)
def test_what_a_strange_manifest_says_of_its_artifact(value: Any, found: Any) -> None:
    if isinstance(value, dict):
        value = {"artifactType": "application/vnd.optc.artifact.v1"} | value
    assert described(json.dumps(value).encode()) == found
    assert described(b"{") == NOTHING
