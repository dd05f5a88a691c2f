"""A patch gives the new artifact's bytes from the old one's, or says why it does not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import digest_of
from optc.artifact.patches.apply import apply_patch
from optc.artifact.patches.make import make_patch
from optc.artifact.patches.patch import OpenedPatch, open_patch
from optc.errors import ArtifactError, InputError, NoArtifactError
from tests.artifact.toy import WEIGHTS, forge, list_files, write_toy


def another(folder: Path, weights: bytes, **files: bytes) -> Artifact:
    """The toy with other weights, and other contents of some files."""
    write_toy(folder)
    (folder / "engines/target/weights.bin").write_bytes(weights)
    for name, data in files.items():
        (folder / "engines/target" / name.replace("_", ".")).write_bytes(data)
    list_files(folder)
    return Artifact.open(folder)


@pytest.fixture
def old(tmp_path: Path) -> Artifact:
    return write_toy(tmp_path / "old")


@pytest.fixture
def new(tmp_path: Path) -> Artifact:
    """Differs in two bytes of the weights, pieces apart."""
    weights = bytearray(WEIGHTS)
    weights[5] ^= 1
    weights[9000] ^= 1
    return another(tmp_path / "new", bytes(weights))


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_there_and_back(tmp_path: Path, old: Artifact, new: Artifact) -> None:
    (new.path / "model.sig").write_bytes(b"who vouches")
    for before, after in ((old, new), (new, old)):
        patch = make_patch(before, after, tmp_path / f"{after.path.name}.patch")
        made = apply_patch(open_patch(patch.path), before, tmp_path / f"{after.path.name}-made")
        assert contents(made.path) == contents(after.path)
        assert made.digest == after.digest
        assert sorted(contents(patch.path)) == ["changes.bin", "patch.json"]


def test_only_what_differs_is_in_it(tmp_path: Path, old: Artifact, new: Artifact) -> None:
    patch = make_patch(old, new, tmp_path / "patch").patch
    files = {one.path: one for one in patch.files}
    weights = files["engines/target/weights.bin"]
    assert weights.base == weights.path
    assert weights.ranges == ((0, 4096), (8192, len(WEIGHTS) - 8192))
    assert not files["engines/target/engine.so"].changed
    assert not files["tokenizer/tokenizer.json"].changed
    assert files["manifest.json"].base is None
    changes = (tmp_path / "patch" / "changes.bin").read_bytes()
    assert len(changes) == sum(one.changed for one in patch.files)
    whole = (new.path / weights.path).read_bytes()
    assert changes[:4096] == whole[:4096], "files are in the order of their paths"


def test_the_same_two_give_the_same_bytes(tmp_path: Path, old: Artifact, new: Artifact) -> None:
    made = [contents(make_patch(old, new, tmp_path / name).path) for name in ("one", "two")]
    assert made[0] == made[1]


def test_pieces_that_touch_are_one_range(tmp_path: Path, old: Artifact) -> None:
    data = os.urandom(len(WEIGHTS))
    patch = make_patch(old, another(tmp_path / "new", data), tmp_path / "patch").patch
    ranges = {one.path: one.ranges for one in patch.files}["engines/target/weights.bin"]
    assert ranges == ((0, len(WEIGHTS)),)


def test_large_files(tmp_path: Path) -> None:
    """Of more than one block, whose changes cross the border of two."""
    data = bytearray(os.urandom((1 << 20) * 2 + 77))
    before = another(tmp_path / "a", bytes(data))
    for at in (0, (1 << 20) - 1, 1 << 20, len(data) - 1):
        data[at] ^= 1
    after = another(tmp_path / "b", bytes(data))
    patch = make_patch(before, after, tmp_path / "patch")
    ranges = {one.path: one.ranges for one in patch.patch.files}["engines/target/weights.bin"]
    assert ranges == ((0, 4096), ((1 << 20) - 4096, 8192), (1 << 21, 77))
    made = apply_patch(open_patch(patch.path), before, tmp_path / "made")
    assert contents(made.path) == contents(after.path)


def test_what_is_not_patched(tmp_path: Path, old: Artifact, new: Artifact) -> None:
    with pytest.raises(InputError, match="is the same artifact"):
        make_patch(old, old, tmp_path / "patch")
    code = another(tmp_path / "code", WEIGHTS[::-1], engine_so=b"edoc")
    with pytest.raises(InputError, match=r"another engine: engines/target/engine\.so differs"):
        make_patch(old, code, tmp_path / "patch")
    forge(new.path, lambda manifest: manifest.update(gated=False))
    ungated = Artifact.open(new.path)
    with pytest.raises(InputError, match="was compiled without gates"):
        make_patch(old, ungated, tmp_path / "patch")
    assert not (tmp_path / "patch").exists()
    make_patch(old, ungated, tmp_path / "patch", gated=False)
    with pytest.raises(InputError, match="already exists"):
        make_patch(old, new, tmp_path / "patch")


def test_another_base_is_refused(tmp_path: Path, old: Artifact, new: Artifact) -> None:
    patch = make_patch(old, new, tmp_path / "patch")
    with pytest.raises(InputError) as refused:
        apply_patch(patch, new, tmp_path / "made")
    assert refused.value.message == (
        f"the patch is for the artifact {old.digest[:12]}…, not for {new.digest[:12]}…"
    )
    assert not (tmp_path / "made").exists()


def test_force_replaces_an_artifact(tmp_path: Path, old: Artifact, new: Artifact) -> None:
    patch = make_patch(old, new, tmp_path / "patch")
    with pytest.raises(InputError, match="already exists"):
        apply_patch(patch, old, old.path)
    apply_patch(patch, old, old.path, force=True)
    assert contents(old.path) == contents(new.path)


def test_a_patch_that_is_none(tmp_path: Path) -> None:
    for name, message in ((".", "holds no patch.json"), ("none", "no such patch")):
        with pytest.raises(NoArtifactError, match=message):
            open_patch(tmp_path / name)


def test_a_changed_byte_is_found(tmp_path: Path, old: Artifact, new: Artifact) -> None:
    path = make_patch(old, new, tmp_path / "patch").path
    for name in ("changes.bin", "patch.json"):
        data = (path / name).read_bytes()
        for at in range(0, len(data), max(1, len(data) // 40)):
            broken = bytearray(data)
            broken[at] ^= 1
            (path / name).write_bytes(broken)
            with pytest.raises(ArtifactError):
                open_patch(path)
        (path / name).write_bytes(data[:-1])
        with pytest.raises(ArtifactError):
            open_patch(path)
        (path / name).write_bytes(data)
    open_patch(path)


def forged(path: Path, change: Callable[[dict[str, Any]], object]) -> OpenedPatch:
    """A patch changed by someone who knows how its digest is made."""
    file = path / "patch.json"
    value = json.loads(file.read_bytes())
    change(value)
    value = {**value, "digest": digest_of(value)}
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    file.write_text(text)
    return open_patch(path)


def _named(value: dict[str, Any], path: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in value["files"] if one["path"] == path)
    return found


WEIGHT_FILE = "engines/target/weights.bin"
#: Changes of patch.json, and what is said of each where it is read.
UNREADABLE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "format": (lambda v: v.update(format=2), "format version 2"),
    "unknown": (lambda v: v.update(more=1), "unknown field"),
    "outside": (lambda v: v["files"][0].update(path="../x"), "leaves the artifact"),
    "base outside": (lambda v: _named(v, WEIGHT_FILE).update(base="/x"), "leaves the artifact"),
    "order": (lambda v: v["files"].reverse(), "not sorted"),
    "behind": (lambda v: _named(v, WEIGHT_FILE).update(bytes=10), "not in order, or too long"),
    "no base": (lambda v: _named(v, WEIGHT_FILE).update(base=None), "bytes that are not given"),
    "too few": (lambda v: _named(v, WEIGHT_FILE).update(ranges=[]), "not as long as its changes"),
    "both": (
        lambda v: v["files"].insert(0, {"path": "engines", "bytes": 0, "base": None, "ranges": []}),
        "is a file and a folder",
    ),
    "elsewhere": (lambda v: v["changes"].update(path="x.bin"), "its changes lie in 'x.bin'"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_patch_that_nobody_wrote_is_not_read(
    tmp_path: Path, old: Artifact, new: Artifact, what: str
) -> None:
    path = make_patch(old, new, tmp_path / "patch").path
    change, message = UNREADABLE[what]
    with pytest.raises(ArtifactError, match=message):
        forged(path, change)


#: Changes of patch.json, and what is said of each where it is applied.
USELESS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "result": (lambda v: v.update(result="ab" * 32), "gives .*, not the abababababab… that it"),
    "missing": (lambda v: v["files"].remove(_named(v, "tokenizer/tokenizer.json")), "is missing"),
    "base": (
        lambda v: _named(v, "tokenizer/tokenizer.json").update(base="engines/none.so"),
        "is made of 'engines/none.so', which is not there",
    ),
    "place": (
        lambda v: _named(v, WEIGHT_FILE).update(ranges=[[0, 4096], [4096, len(WEIGHTS) - 8192]]),
        "corrupted",
    ),
    "stranger": (
        lambda v: v["files"].append({"path": "zz", "bytes": 0, "base": None, "ranges": []}),
        "gives a file 'zz' that the artifact does not list",
    ),
    "long name": (
        lambda v: v["files"].append({"path": "z" * 300, "bytes": 0, "base": None, "ranges": []}),
        "cannot be written: File name too long",
    ),
}


@pytest.mark.parametrize("what", USELESS)
def test_a_patch_that_gives_something_else_writes_nothing(
    tmp_path: Path, old: Artifact, new: Artifact, what: str
) -> None:
    path = make_patch(old, new, tmp_path / "patch").path
    change, message = USELESS[what]
    with pytest.raises(ArtifactError, match=message):
        apply_patch(forged(path, change), old, tmp_path / "made")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["new", "old", "patch"]


def test_a_patch_that_brings_another_engine(tmp_path: Path, old: Artifact) -> None:
    """Made by someone who leaves the check out."""
    code = another(tmp_path / "new", WEIGHTS[::-1], engine_so=b"edoc")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("optc.artifact.patches.make.check_same_engines", lambda old, new: None)
        path = make_patch(old, code, tmp_path / "patch").path
    with pytest.raises(InputError, match="another engine"):
        apply_patch(open_patch(path), old, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_changes_that_became_shorter_since_they_were_checked(
    tmp_path: Path, old: Artifact, new: Artifact
) -> None:
    patch = make_patch(old, new, tmp_path / "patch")
    changes = patch.path / "changes.bin"
    changes.write_bytes(changes.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match="became shorter while it was read"):
        apply_patch(patch, old, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_equal_files_are_there_once(tmp_path: Path, old: Artifact, new: Artifact) -> None:
    patch = make_patch(old, new, tmp_path / "patch")
    made = apply_patch(patch, old, tmp_path / "made").path / "engines/target"
    assert (made / "engine.so").samefile(made / "libtvm_runtime.so")
    assert not (made / "engine.so").samefile(old.path / "engines/target/engine.so")


def test_a_patch_is_known_by_its_digest(tmp_path: Path, old: Artifact, new: Artifact) -> None:
    patch = make_patch(old, new, tmp_path / "patch")
    value = json.loads((patch.path / "patch.json").read_bytes())
    assert patch.patch.digest == value["digest"] == digest_of(value)
    other = make_patch(new, old, tmp_path / "other")
    assert other.patch.digest != patch.patch.digest


def test_a_patch_that_was_changed_says_so(tmp_path: Path, old: Artifact, new: Artifact) -> None:
    """By someone who keeps to its form, but does not make its digest anew."""
    file = make_patch(old, new, tmp_path / "patch").path / "patch.json"
    value = json.loads(file.read_bytes()) | {"result": "ab" * 32}
    file.write_text(json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False) + "\n")
    with pytest.raises(ArtifactError, match="the digest does not match the contents"):
        open_patch(file.parent)
