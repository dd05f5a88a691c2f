from __future__ import annotations

import hashlib
import mmap
from pathlib import Path

import pytest

from optc.artifact import digests, manifest
from optc.artifact.digests import hashed_file, hashing_threads, range_sha256
from optc.artifact.manifest import PIECE_MULTIPLE


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("mapped", [0, 1, 3])
def test_files_are_mapped_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: int, extra: int
) -> None:
    part = mmap.ALLOCATIONGRANULARITY
    monkeypatch.setattr(digests, "_CHUNK", part)
    data = bytes(range(251)) * (mapped * part)
    path = tmp_path / "file"
    path.write_bytes(data := data[: max(0, mapped * part + extra)])
    assert range_sha256(path, 0, len(data)) == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("full", [1, 3])
def test_files_above_a_piece_have_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: int, extra: int
) -> None:
    piece = mmap.ALLOCATIONGRANULARITY
    monkeypatch.setattr(digests, "PIECE_BYTES", piece)
    monkeypatch.setattr(manifest, "PIECE_MULTIPLE", piece)
    data = (bytes(range(251)) * full * piece)[: full * piece + extra]
    (tmp_path / "a").mkdir()
    path = tmp_path / "a/file"
    path.write_bytes(data)
    with hashing_threads() as threads:
        entry = hashed_file(tmp_path, path, threads)
    assert (entry.path, entry.bytes) == ("a/file", len(data))
    assert entry.sha256 == hashlib.sha256(data).hexdigest()
    starts = range(0, len(data), piece)
    if len(starts) == 1:
        assert entry.pieces is None
    else:
        assert entry.pieces is not None
        assert entry.pieces.bytes == piece
        wanted = [hashlib.sha256(data[at : at + piece]).hexdigest() for at in starts]
        assert list(entry.pieces.sha256) == wanted


def test_manifests_of_the_same_files_stay_the_same() -> None:
    """The length of pieces is in the manifest, and so in the digest of an artifact."""
    assert digests.PIECE_BYTES == 64 * 2**20


def test_pieces_start_where_a_reader_can_map_them() -> None:
    assert digests.PIECE_BYTES % PIECE_MULTIPLE == 0
    assert PIECE_MULTIPLE % mmap.ALLOCATIONGRANULARITY == 0
