"""The cache gives back what was measured for the same thing, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from optc.runtime.speculative.planning import costs_cache
from optc.runtime.speculative.planning.costs_cache import CostsCache
from optc.system import cache_folder as cache_module
from optc.system.cache_folder import cache_folder, forget_oldest, keep_file, keep_whole, read_whole

VALUE = {"seconds": [0.5, 1.5]}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    cache = CostsCache(tmp_path / "new")
    assert cache.read("times.v1", "ab", 2) is None
    assert cache.write("times.v1", "ab", 2, VALUE)
    assert CostsCache(tmp_path / "new").read("times.v1", "ab", 2) == VALUE
    assert cache.write("times.v1", "ab", 2, {})
    assert cache.read("times.v1", "ab", 2) == {}
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_another_kind_artifact_thread_count_or_machine_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = CostsCache(tmp_path)
    cache.write("times.v1", "ab", 2, VALUE)
    for key in (("times.v2", "ab", 2), ("times.v1", "cd", 2), ("times.v1", "ab", 1)):
        assert cache.read(*key) is None
    monkeypatch.setattr(costs_cache, "cpu_name", lambda: "another processor")
    assert CostsCache(tmp_path).read("times.v1", "ab", 2) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"key": 1, "value": {}}'])
def test_a_damaged_file_counts_as_nothing(tmp_path: Path, text: str) -> None:
    cache = CostsCache(tmp_path)
    cache.write("times.v1", "ab", 2, VALUE)
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    assert cache.read("times.v1", "ab", 2) is None
    assert cache.write("times.v1", "ab", 2, VALUE)
    assert cache.read("times.v1", "ab", 2) == VALUE


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = CostsCache(tmp_path / "file" / "folder")
    assert not cache.write("times.v1", "ab", 2, VALUE)
    assert cache.read("times.v1", "ab", 2) is None


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OPTC_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "optc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache/optc"
    monkeypatch.setenv("OPTC_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")


def test_a_file_is_kept_and_replaced_with_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new/folder/file"
    assert keep_file(path, b"one")
    assert keep_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_what_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    assert not keep_file(tmp_path / "file/kept", b"one")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert not keep_file(tmp_path / "kept", b"one")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_all_code_is_in_the_digest() -> None:
    """That of passes and backends too, which a checkout links to."""
    root = Path(cache_module.__file__).parents[1]
    found = {str(path.relative_to(root)) for path in cache_module._sources(root)}
    assert {
        "system/cache_folder.py",
        "backends/tvm/isa.py",
        "passes/canonicalize/__init__.py",
    } <= found


def test_a_file_that_is_not_whole_is_none(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    assert read_whole(path) is None
    keep_whole(path, b"content")
    assert read_whole(path) == b"content"
    for damaged in (b"", b"short", path.read_bytes()[:-1], b"x" * 64):
        path.write_bytes(damaged)
        assert read_whole(path) is None
    forget_oldest(tmp_path / "missing", 1)
