"""How much memory measurements go over, by the caches that the kernel describes."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.system.hardware.cpu_caches import beyond_caches, last_level_bytes

MIB = 1 << 20


def _describe(root: Path, processor: int, caches: list[tuple[int, str, str]]) -> None:
    """Write level, size and sharing processors of each cache of ``processor``."""
    for index, (level, size, shared) in enumerate(caches):
        folder = root / f"cpu{processor}" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{size}\n")
        (folder / "shared_cpu_list").write_text(f"{shared}\n")


def test_a_shared_cache_counts_once_and_each_of_several_counts(tmp_path: Path) -> None:
    for processor in range(4):
        group = "0-1" if processor < 2 else "2-3"
        own = [(1, "48K", str(processor)), (2, "2048K", str(processor)), (3, "32M", group)]
        _describe(tmp_path, processor, own)
    (tmp_path / "cpufreq").mkdir()
    assert last_level_bytes(tmp_path) == 64 * MIB


@pytest.mark.parametrize(
    ("size", "expected"), [("8M", 256), ("266240K", 520), ("1G", 1024)], ids=str
)
def test_measurements_go_over_twice_the_caches_within_limits(
    tmp_path: Path, size: str, expected: int
) -> None:
    _describe(tmp_path, 0, [(3, size, "0-7")])
    assert beyond_caches(tmp_path) == expected * MIB


def test_a_system_that_describes_no_caches(tmp_path: Path) -> None:
    assert last_level_bytes(tmp_path) == 0
    assert beyond_caches(tmp_path) == 256 * MIB
