"""Entries of the calibration cache: what is kept is found again, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from optc.errors import InputError
from optc.proof.reference import calibration_cache
from optc.proof.reference.calibration import CalibrationStore
from optc.proof.reference.calibration_cache import (
    MOST_BYTES,
    CalibrationCache,
    DamagedEntryError,
    cache_at,
    user_calibrations,
)

KEY = "0" * 64


@pytest.fixture(autouse=True)
def on_any_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The free space of this disk does not matter."""
    monkeypatch.setattr(calibration_cache, "_FREE_BYTES", 0)


def filled() -> CalibrationStore:
    store = CalibrationStore()
    store.put(["q", "k"], "hessian", np.arange(12.0).reshape(3, 4))
    store.put(["o"], "hessian", np.ones((2, 2), np.float32))
    store.put(["q"], "range", np.array(3.5))
    return store


def kept(folder: Path) -> CalibrationCache:
    cache = CalibrationCache(folder / "cache")
    cache.save(KEY, filled().groups(), {"tokens": 5})
    return cache


def test_what_was_kept_is_found_again_to_the_bit(tmp_path: Path) -> None:
    store = CalibrationStore()
    assert kept(tmp_path).load(KEY, store) == {"tokens": 5}
    assert store.digest() == filled().digest()
    assert store.find("q", "hessian") is store.find("k", "hessian")
    assert [one.name for one in (tmp_path / "cache").iterdir()] == [KEY]


def test_another_key_finds_nothing(tmp_path: Path) -> None:
    assert kept(tmp_path).load("1" * 64, CalibrationStore()) is None
    assert CalibrationCache(tmp_path / "absent").load(KEY, CalibrationStore()) is None


def test_statistics_that_were_known_before_are_not_kept(tmp_path: Path) -> None:
    store = filled()
    before = set(store.statistics())
    store.put(["new"], "range", np.array(1.0))
    store.put(["q"], "range", np.array(9.0))
    groups = [(one.weights, one.statistic, float(one.array)) for one in store.groups(before)]
    assert groups == [(("new",), "range", 1.0), (("q",), "range", 9.0)]


@pytest.mark.parametrize("name", ["entry.json", "0.npy", "1.npy"])
@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_a_damaged_entry_is_removed_and_nothing_of_it_is_taken(
    tmp_path: Path, name: str, how: str
) -> None:
    cache = kept(tmp_path)
    path = tmp_path / "cache" / KEY / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    if how == "remove":
        path.unlink()
    else:
        path.write_bytes(content if how == "flip" else content[:-5])
    store = CalibrationStore()
    with pytest.raises(DamagedEntryError):
        cache.load(KEY, store)
    assert list(store.statistics()) == []
    assert cache.load(KEY, store) is None


def test_the_first_of_two_compiles_wins_and_leaves_no_rest(tmp_path: Path) -> None:
    cache = kept(tmp_path)
    other = CalibrationStore()
    other.put(["q"], "range", np.array(8.0))
    cache.save(KEY, other.groups(), {})
    assert cache.load(KEY, CalibrationStore()) == {"tokens": 5}
    assert [one.name for one in (tmp_path / "cache").iterdir()] == [KEY]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = CalibrationCache(tmp_path / "file" / "cache")
    with pytest.raises(InputError, match="cannot keep the calibration: Not a directory") as caught:
        cache.save(KEY, filled().groups(), {})
    assert "--calibration-cache" in caught.value.hint


def entry(bounded: CalibrationCache, key: str, values: int, used: float) -> None:
    """An entry of so many bytes of values that was last used then."""
    store = CalibrationStore()
    store.put(["w"], "s", np.zeros(values, np.uint8))
    bounded.save(key, store.groups(), {})
    os.utime(bounded.folder / key, (used, used))


def test_the_oldest_go_where_the_cache_has_a_bound(tmp_path: Path) -> None:
    bounded = CalibrationCache(tmp_path / "c", 8000)
    entry(bounded, "old", 2000, 1e9)
    entry(bounded, "used", 2000, 1e9 + 1)
    entry(bounded, "new", 2000, 1e9 + 2)
    assert bounded.read("old") is not None  # used now
    entry(bounded, "newest", 3000, 1e9 + 3)
    assert bounded.keys("") == ["new", "newest", "old"]


def test_what_does_not_fit_at_all_is_not_kept(tmp_path: Path) -> None:
    bounded = CalibrationCache(tmp_path / "c", 3000)
    entry_kept = CalibrationStore()
    entry_kept.put(["w"], "s", np.zeros(4000, np.uint8))
    bounded.save("a", entry_kept.groups(), {})
    assert bounded.keys("") == []


def test_a_full_disk_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_cache, "_FREE_BYTES", 1 << 60)
    bounded = CalibrationCache(tmp_path / "c", 3000)
    bounded.save("a", filled().groups(), {})
    assert bounded.keys("") == []


def test_halves_of_killed_compiles_go_after_a_day(tmp_path: Path) -> None:
    bounded = CalibrationCache(tmp_path / "c", 1 << 20)
    for name, used in ((".a.half", 1e9), (".b.half", time.time())):
        (tmp_path / "c" / name).mkdir(parents=True)
        os.utime(tmp_path / "c" / name, (used, used))
    bounded.save("a", filled().groups(), {})
    assert sorted(place.name for place in (tmp_path / "c").iterdir()) == [".b.half", "a"]


def test_a_bounded_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("a file")
    CalibrationCache(tmp_path / "c", 1 << 20).save("a", filled().groups(), {})
    assert (tmp_path / "c").read_text() == "a file"


def test_the_users_cache_is_bounded_and_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path))
    assert user_calibrations() == tmp_path / "calibrations"
    assert cache_at(str(user_calibrations())).most_bytes == MOST_BYTES
    assert cache_at(str(tmp_path / "mine")).most_bytes == 0
