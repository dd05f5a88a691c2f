"""A layout's index and blobs, as other tools leave them too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.store.oci.layout import Layout
from optc.artifact.store.oci.manifest import Blob, digest_of
from optc.artifact.store.oci.reference import parse_reference
from optc.errors import InputError


def place(folder: Path, version: str = ":v1") -> Layout:
    return Layout(parse_reference(f"oci:{folder}{version}", "x"), folder)


def blob_of(data: bytes) -> Blob:
    return Blob(digest_of(data), len(data))


def tags(folder: Path) -> list[tuple[str, bytes]]:
    return [(one.tag, one.manifest) for one in place(folder).tagged()]


def no_count(count: int) -> None:
    """Counts nothing."""


def test_a_tag_is_taken_alone(tmp_path: Path) -> None:
    for version, data in ((":v1", b"{}"), (":v2", b"[]"), (":v3", b"{}")):
        place(tmp_path, version).put_manifest(data)
    place(tmp_path, ":v2").untag()
    assert tags(tmp_path) == [("v1", b"{}"), ("v3", b"{}")]
    with pytest.raises(InputError, match=r"nothing called 'v2' \(there are v1, v3\)"):
        place(tmp_path, ":v2").untag()
    assert tags(tmp_path) == [("v1", b"{}"), ("v3", b"{}")]
    place(tmp_path, f"@{digest_of(b'{}')}").untag()
    assert tags(tmp_path) == []


def test_entries_of_other_tools_stay_as_they_are(tmp_path: Path) -> None:
    place(tmp_path).put_manifest(b"{}")
    index = tmp_path / "index.json"
    other: dict[str, Any] = {"digest": digest_of(b"[]"), "size": 2, "platform": {"os": "linux"}}
    place(tmp_path).put_bytes(blob_of(b"[]"), b"[]")
    value = json.loads(index.read_text())
    index.write_text(json.dumps({**value, "manifests": [other, *value["manifests"]]}))
    assert tags(tmp_path) == [("", b"[]"), ("v1", b"{}")]
    place(tmp_path).put_manifest(b"{ }")
    assert json.loads(index.read_text())["manifests"][0] == other
    place(tmp_path).untag()
    assert json.loads(index.read_text())["manifests"] == [other]


def test_a_folder_without_an_index_is_no_layout(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no layout"):
        place(tmp_path).tagged()


def test_a_blob_is_there_if_its_bytes_are(tmp_path: Path) -> None:
    layout, blob = place(tmp_path), blob_of(b"weights")
    assert not layout.has(blob)
    layout.put_bytes(blob, b"weights")
    assert layout.has(blob)
    path = tmp_path / "blobs/sha256" / blob.digest.removeprefix("sha256:")
    for damaged in (b"weight", b"Weights"):
        path.write_bytes(damaged)
        assert not layout.has(blob)


def test_a_blob_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    layout, blob = place(tmp_path), blob_of(b"weights")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", full)
        with pytest.raises(InputError, match="cannot be written: No space left on device"):
            layout.put_bytes(blob, b"weights")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "digest", ["sha256:../../x", "sha256:" + "a" * 63 + "/", "sha512:" + "a" * 64, "a" * 64]
)
def test_a_digest_names_no_other_file(tmp_path: Path, digest: str) -> None:
    with pytest.raises(InputError, match="is no sha256 digest"):
        place(tmp_path).get(Blob(digest, 1), tmp_path / "x", no_count)
