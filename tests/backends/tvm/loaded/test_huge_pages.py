"""Files in huge pages: what is written first, and what the file holds."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from optc.backends.tvm.loaded.huge_pages import HUGE_PAGE, HugePageWriter, anonymous

TOTAL = 3 * HUGE_PAGE + 12345


def pieces(count: int) -> list[tuple[int, np.ndarray[tuple[int], np.dtype[np.uint8]]]]:
    """All of a file, cut at random, in random order."""
    rng = np.random.default_rng(0)
    cuts = np.sort(rng.choice(TOTAL - 1, count - 1, replace=False) + 1)
    starts = [0, *cuts.tolist()]
    ends = [*cuts.tolist(), TOTAL]
    data = rng.integers(0, 256, TOTAL, np.uint8)
    parts = [(a, data[a:b]) for a, b in zip(starts, ends, strict=True)]
    return [parts[i] for i in rng.permutation(count)]


@pytest.mark.parametrize("count", [1, 2, 9, 200])
def test_the_first_write_of_every_huge_page_is_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    touched: set[int] = set()
    real = os.pwrite

    def pwrite(descriptor: int, data: memoryview, position: int) -> int:
        for page in range(position // HUGE_PAGE, -(-(position + len(data)) // HUGE_PAGE)):
            if page not in touched:
                touched.add(page)
                start = page * HUGE_PAGE
                assert (position, len(data)) == (start, min(HUGE_PAGE, TOTAL - start))
        return real(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    parts = pieces(count)
    with (tmp_path / "file").open("wb") as file:
        writer = HugePageWriter(file.fileno(), TOTAL)
        assert [writer.write(data, at) for at, data in parts] == [len(d) for _, d in parts]
    expected = b"".join(data.tobytes() for _, data in sorted(parts, key=lambda part: part[0]))
    assert (tmp_path / "file").read_bytes() == expected
    assert touched == set(range(4))


def test_a_write_that_is_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, data[:1000], at))
    data = np.random.default_rng(1).integers(0, 1 << 16, 5000, np.uint16)
    with (tmp_path / "file").open("wb") as file:
        assert HugePageWriter(file.fileno(), 10004).write(data, 4) == 10000
    assert (tmp_path / "file").read_bytes() == b"\0" * 4 + data.tobytes()


def test_anonymous_memory_is_zeroed_and_taken_on_first_write() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident()
    array = np.frombuffer(anonymous(1 << 30), np.uint8)
    array[:10] = 1
    assert array[10] == 0
    assert array.flags.writeable
    assert resident() - before < 1 << 28
