from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest

from optc.artifact.store.oci import copying
from optc.artifact.store.oci.copying import write_blob
from optc.artifact.store.oci.manifest import Blob
from optc.errors import ArtifactError


def blob(data: bytes) -> Blob:
    return Blob(f"sha256:{hashlib.sha256(data).hexdigest()}", len(data), "weights.bin")


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 32, 33])
@pytest.mark.parametrize("more", [b"", b"and what belongs to another"])
def test_no_more_is_written_than_the_blob_has(
    size: int, more: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_CHUNK", 16)
    data, moved, source = bytes(range(size)), list[int](), io.BytesIO(bytes(range(size)) + more)
    write_blob(source, tmp_path / "a", blob(data), moved.append, "x")
    assert (tmp_path / "a").read_bytes() == data
    assert sum(moved) == size
    assert all(0 < one <= 16 for one in moved)
    assert source.read() == more


@pytest.mark.parametrize("data", [b"", b"weight", b"Weights", b"Weights and more"])
def test_other_bytes_leave_no_file(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"x: has other bytes of 'weights.bin' than their dig"):
        write_blob(io.BytesIO(data), tmp_path / "a", blob(b"weights"), lambda _: None, "x")
    assert list(tmp_path.iterdir()) == []


def test_what_ends_it_leaves_no_file(tmp_path: Path) -> None:
    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_blob(io.BytesIO(b"weights"), tmp_path / "a", blob(b"weights"), stop, "x")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("other")
    with pytest.raises(FileExistsError):
        write_blob(io.BytesIO(b"weights"), tmp_path / "a", blob(b"weights"), lambda _: None, "x")
    assert (tmp_path / "a").read_text() == "other"
