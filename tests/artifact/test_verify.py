from __future__ import annotations

import hashlib
import mmap
from pathlib import Path

import pytest

from optc.artifact import Artifact, verify
from optc.artifact.verify import file_sha256
from optc.errors import ArtifactError
from tests.artifact.toy import write_toy

WEIGHTS_PATH = "engines/target/weights.bin"  # 10,240 bytes, the largest file


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("pieces", [0, 1, 3])
def test_files_are_hashed_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int, extra: int
) -> None:
    piece = mmap.ALLOCATIONGRANULARITY
    monkeypatch.setattr(verify, "_PIECE", piece)
    data = bytes(range(251)) * (pieces * piece)
    path = tmp_path / "file"
    path.write_bytes(data := data[: max(0, pieces * piece + extra)])
    assert file_sha256(path) == hashlib.sha256(data).hexdigest()


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
