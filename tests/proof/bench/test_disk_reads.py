"""What is counted while an engine runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.proof.bench import disk_reads
from optc.proof.bench.disk_reads import DiskReads, read_bytes
from optc.proof.bench.result import BenchResult


def test_only_what_is_read_inside_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"bytes": 1000, "faults": 5}
    monkeypatch.setattr(disk_reads, "read_bytes", lambda: now["bytes"])
    monkeypatch.setattr(disk_reads, "_faults", lambda: now["faults"])
    reads = DiskReads()
    for _ in range(2):
        with reads:
            now["bytes"] += 300
            now["faults"] += 4
        now["bytes"] += 77
        now["faults"] += 7
    assert (reads.bytes, reads.faults) == (600, 8)
    result = reads.noted(BenchResult(1, 2, 4, 1.0, 1.0, {}, {}), 16)
    assert (result.disk_bytes_per_token, result.page_faults_per_token) == (37.5, 0.5)


def test_the_counts_of_linux(tmp_path: Path) -> None:
    assert read_bytes() >= 0
    assert disk_reads._faults() >= 0
    (tmp_path / "proc/self").mkdir(parents=True)
    io = tmp_path / "proc/self/io"
    io.write_text("rchar: 7\nread_bytes: 4096\ncancelled_write_bytes: 1\n")
    assert read_bytes(tmp_path) == 4096
    io.write_text("rchar: 7\n")
    assert read_bytes(tmp_path) == 0


def test_a_system_that_says_nothing(tmp_path: Path) -> None:
    assert read_bytes(tmp_path) == 0
