"""Nothing that others put into an artifact's folder is deleted with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from optc.artifact.artifact import Artifact
from optc.artifact.store.local import remove
from optc.artifact.store.oci.reference import parse_reference
from optc.artifact.store.oci.transfer import open_place, pull, push
from optc.artifact.strangers import strangers
from optc.artifact.writer import ArtifactWriter
from optc.errors import InputError
from tests.artifact.toy import toy_manifest, write_files, write_toy


def _replaced(artifact: Path) -> None:
    write_toy(artifact, force=True)


def _pulled(artifact: Path) -> None:
    place = open_place(parse_reference(f"oci:{artifact.parent / 'layout'}:v1", "x"))
    push(write_toy(artifact.parent / "other"), place)
    pull(place, artifact, "layout", force=True)


WAYS: dict[str, Callable[[Path], object]] = {
    "replaced": _replaced,
    "pulled": _pulled,
    "removed": remove,
}


def _link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "elsewhere")


def _linked_folder(path: Path) -> None:
    (path.parent.parent / "elsewhere").mkdir()
    _link(path)


#: By the path in the artifact, how it is made there.
OTHERS: dict[str, Callable[[Path], object]] = {
    "model.safetensors": lambda path: path.write_text("precious"),
    "source/deep/model.onnx": lambda path: path.write_text("precious"),
    "engines/target/notes": lambda path: path.write_text("precious"),
    ".git/HEAD": lambda path: path.write_text("precious"),
    "link": _link,
    "folder": _linked_folder,
}


def _all(folder: Path) -> dict[str, bytes]:
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {name: path.read_bytes() if path.is_file() else b"" for name, path in files.items()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("other", OTHERS)
def test_files_of_others_are_named_and_stay(tmp_path: Path, way: str, other: str) -> None:
    artifact = write_toy(tmp_path / "a").path
    (artifact / other).parent.mkdir(parents=True, exist_ok=True)
    OTHERS[other](artifact / other)
    before = _all(artifact)
    with pytest.raises(InputError, match=f"no part of the artifact: {other}; not re") as caught:
        WAYS[way](artifact)
    assert caught.value.where == str(artifact)
    assert _all(artifact) == before


def test_what_comes_while_a_new_one_is_written_stays_too(tmp_path: Path) -> None:
    artifact = write_toy(tmp_path / "a").path
    with ArtifactWriter(artifact, force=True) as writer:
        write_files(writer)
        manifest = toy_manifest(writer.hashed_files())
        (artifact / "notes").write_text("precious")
        with pytest.raises(InputError, match="no part of the artifact: notes"):
            writer.commit(manifest, {})
    assert (artifact / "notes").read_text() == "precious"


def test_what_takes_its_place_meanwhile_stays(tmp_path: Path) -> None:
    artifact = write_toy(tmp_path / "a").path
    with ArtifactWriter(artifact, force=True) as writer:
        write_files(writer)
        manifest = toy_manifest(writer.hashed_files())
        shutil.rmtree(artifact)
        artifact.mkdir()
        (artifact / "model").write_text("of another program")
        with pytest.raises(InputError, match="is no artifact; not replaced"):
            writer.commit(manifest, {})
    assert (artifact / "model").read_text() == "of another program"


@pytest.mark.parametrize("force", [False, True])
def test_links_in_a_circle_are_no_place(tmp_path: Path, force: bool) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(InputError, match="cannot be written: links lead in a circle"):
        ArtifactWriter(tmp_path / "a", force=force)


def test_a_failed_one_beside_files_of_others_is_kept_elsewhere(tmp_path: Path) -> None:
    (write_toy(tmp_path / "a.failed").path / "notes").write_text("precious")
    with ArtifactWriter(tmp_path / "a") as writer:
        write_files(writer)
        kept = writer.keep_failed(toy_manifest(writer.hashed_files()), {})
    assert kept == tmp_path / "a.failed-2"
    assert (tmp_path / "a.failed/notes").read_text() == "precious"


@pytest.mark.parametrize("manifest", ["", "{}", '{"format": 1, "files": [1, {"x": 2}]}', None])
def test_an_artifact_that_is_damaged_is_replaced(tmp_path: Path, manifest: str | None) -> None:
    artifact = write_toy(tmp_path / "a").path
    if manifest is not None:
        (artifact / "manifest.json").write_text(manifest)
    (artifact / "tokenizer/tokenizer.json").write_bytes(b"damaged")
    if manifest == '{"format": 1, "files": [1, {"x": 2}]}':
        assert strangers(artifact)  # it says of none that it is its own
        return
    for name in (".DS_Store", "engines/.nfs0000ab", f".report.json.partial-{os.getpid()}"):
        (artifact / name).write_bytes(b"")
    assert strangers(artifact) == []
    assert write_toy(artifact, force=True).digest == Artifact.open(artifact).digest
