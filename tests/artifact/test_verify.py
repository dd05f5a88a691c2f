from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from optc.artifact import digests, verify
from optc.artifact.artifact import Artifact
from optc.artifact.manifest import FileEntry
from optc.artifact.verify import Range, check_contents
from optc.errors import ArtifactError
from tests.artifact.toy import toy_manifest, write_toy

WEIGHTS_PATH = "engines/target/weights.bin"  # 10,240 bytes, the largest file
MIB = 1 << 20
SIZE = 3 * MIB + 5


@pytest.fixture
def artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    monkeypatch.setattr(verify, "_LARGE", 10_000)
    return write_toy(tmp_path / "a")


def damage(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def test_large_files_are_checked_by_the_end_of_the_body(artifact: Artifact) -> None:
    ran = []
    with artifact.contents_checked("full"):
        ran.append("whole")
    damage(artifact.path / WEIGHTS_PATH)
    with artifact.contents_checked("size"):
        ran.append("not looked at")
    with pytest.raises(ArtifactError, match="corrupted"), artifact.contents_checked("full"):
        ran.append("damaged")
    assert ran == ["whole", "not looked at", "damaged"]


def test_damage_is_told_rather_than_what_came_of_it(artifact: Artifact) -> None:
    with pytest.raises(ValueError, match="unrelated"), artifact.contents_checked("full"):
        raise ValueError("unrelated")
    damage(artifact.path / WEIGHTS_PATH)
    with (
        pytest.raises(ArtifactError, match="corrupted") as caught,
        artifact.contents_checked("full"),
    ):
        raise ValueError("what the damage did")
    assert caught.value.where == str(artifact.path / WEIGHTS_PATH)


def test_small_files_are_checked_before_the_body(artifact: Artifact) -> None:
    damage(artifact.path / "tokenizer/tokenizer.json")
    with pytest.raises(ArtifactError, match="corrupted"), artifact.contents_checked("full"):
        pytest.fail("the body ran")


def test_files_of_16_mib_are_large(tmp_path: Path) -> None:
    ran = []
    for size in (16 * MIB - 1, 16 * MIB):
        (tmp_path / "f").touch()
        os.truncate(tmp_path / "f", size)
        wrong = toy_manifest((FileEntry("f", size, "00" * 32),))
        with (
            pytest.raises(ArtifactError, match="corrupted"),
            Artifact(tmp_path, wrong).contents_checked("full"),
        ):
            ran.append(size)
    assert ran == [16 * MIB]


def test_a_truncated_file_is_found_before_anything_is_hashed_or_run(artifact: Artifact) -> None:
    damage(artifact.path / "tokenizer/tokenizer.json")
    os.truncate(artifact.path / WEIGHTS_PATH, 10_239)
    files = sorted(artifact.manifest.files, key=lambda entry: entry.bytes)
    with pytest.raises(ArtifactError, match="has 10239 bytes where the manifest says 10240"):
        verify.check_files(artifact.path, files)
    with pytest.raises(ArtifactError, match="has 10239 bytes"), artifact.contents_checked("full"):
        pytest.fail("the body ran")


def test_progress_names_each_file_that_was_hashed(artifact: Artifact) -> None:
    seen: list[tuple[str, int]] = []
    files = artifact.manifest.files
    verify.check_files(artifact.path, files, progress=lambda *done: seen.append(done))
    assert seen == [(entry.path, entry.bytes) for entry in files]


def test_a_file_that_goes_away_is_named(artifact: Artifact) -> None:
    part = verify.Range(0, 1, "", "its sha256")
    with pytest.raises(ArtifactError, match="cannot be read: No such file") as caught:
        verify.check_contents(artifact.path / "absent", part)
    assert caught.value.where == str(artifact.path / "absent")


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    """An artifact of one file in four pieces, the last of five bytes."""
    monkeypatch.setattr(digests, "PIECE_BYTES", MIB)
    path = tmp_path / WEIGHTS_PATH
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(range(251)) * (SIZE // 251 + 1))
    os.truncate(path, SIZE)
    with digests.hashing_threads() as threads:
        entry = digests.hashed_file(tmp_path, path, threads)
    assert entry.pieces is not None
    assert len(entry.pieces.sha256) == 4
    return Artifact(tmp_path, toy_manifest((entry,)))


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def threads_alive() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("optc-hash")]


def check_all(artifact: Artifact, *, whole: bool) -> None:
    verify.check_files(artifact.path, artifact.manifest.files, whole=whole)


@pytest.mark.parametrize("at", [0, MIB - 1, MIB, 2 * MIB + 7, 3 * MIB, SIZE - 1])
def test_a_changed_byte_is_found_in_every_piece(large: Artifact, at: int) -> None:
    check_all(large, whole=False)
    flip(large.path / WEIGHTS_PATH, at)
    start = at // MIB * MIB
    told = f"corrupted: the sha256 of its bytes {start}:{min(start + MIB, SIZE)} differs"
    with pytest.raises(ArtifactError, match=told) as caught:
        check_all(large, whole=False)
    assert caught.value.where == str(large.path / WEIGHTS_PATH)
    with pytest.raises(ArtifactError, match=told), large.contents_checked("full"):
        pass
    with pytest.raises(ArtifactError, match="corrupted: its sha256 differs"):
        check_all(large, whole=True)
    assert not threads_alive()


def with_digests(artifact: Artifact, entry: FileEntry) -> Artifact:
    return Artifact(artifact.path, replace(artifact.manifest, files=(entry,)))


def test_pieces_that_disagree_with_the_file_are_refused(large: Artifact) -> None:
    (entry,) = large.manifest.files
    assert entry.pieces is not None
    swapped = replace(entry.pieces, sha256=entry.pieces.sha256[::-1])
    wrong = with_digests(large, replace(entry, pieces=swapped))
    for whole in (False, True):
        with pytest.raises(ArtifactError, match=f"bytes 0:{MIB} differs"):
            check_all(wrong, whole=whole)


def test_loads_check_pieces_and_verify_the_whole_as_well(
    large: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    (entry,) = large.manifest.files
    wrong = with_digests(large, replace(entry, sha256="00" * 32))
    check_all(wrong, whole=False)
    monkeypatch.setattr(verify, "_LARGE", MIB)
    with wrong.contents_checked("full"):
        pass
    with pytest.raises(ArtifactError, match="corrupted: its sha256 differs"):
        check_all(wrong, whole=True)
    check_all(with_digests(large, replace(entry, pieces=None)), whole=False)  # an older artifact


def test_checks_end_with_an_interrupted_body(
    large: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has not begun is dropped; what runs is waited for, so that no thread outlives it."""
    began, go_on, ran = threading.Event(), threading.Event(), []

    class OneThread(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            go_on.set()
            super().shutdown(wait=wait)

    def slow(path: Path, part: verify.Range) -> None:
        began.set()
        go_on.wait(60)
        ran.append(part.start)

    def interrupted() -> None:
        began.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "_LARGE", MIB)
    monkeypatch.setattr(verify, "hashing_threads", lambda: OneThread(1, "optc-hash"))
    monkeypatch.setattr(verify, "check_contents", slow)
    with pytest.raises(KeyboardInterrupt), large.contents_checked("full"):
        interrupted()
    assert ran == [0]
    assert not threads_alive()


def test_a_file_that_becomes_shorter_is_named(large: Artifact) -> None:
    part = verify.Range(0, SIZE, "", "its sha256")
    os.truncate(path := large.path / WEIGHTS_PATH, MIB)
    with pytest.raises(ArtifactError, match="became shorter") as caught:
        verify.check_contents(path, part)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("at", [0, 2, 31, 63])
def test_every_character_of_a_sha256_counts(at: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"contents")
    digest = hashlib.sha256(b"contents").hexdigest()
    check_contents(path, Range(0, 8, digest, "its sha256"))
    wrong = digest[:at] + ("1" if digest[at] == "0" else "0") + digest[at + 1 :]
    with pytest.raises(ArtifactError, match="corrupted"):
        check_contents(path, Range(0, 8, wrong, "its sha256"))
