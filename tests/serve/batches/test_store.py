"""Files, batches and answers on the disk."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from optc.errors import InputError
from optc.serve.api_errors import APIError
from optc.serve.batches.records import Batch
from optc.serve.batches.store import Store


def batch(store: Store, name: str = "batch_1", salt: str = "a") -> Batch:
    file = store.add_file(salt, "in.jsonl", "batch", [b"one\n", b"two\n"])
    made = Batch(name, salt, "/v1/completions", file.id, {"k": "v"}, 1, 2)
    store.add_batch(made)
    return made


def test_files(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    one = store.add_file("a", "one.jsonl", "batch", [b"ab", b"c"])
    two = store.add_file("a", "../two", "batch", [])
    assert store.path(one).read_bytes() == b"abc"
    assert (one.bytes, two.bytes) == (3, 0)
    assert store.files("a") == [two, one]
    assert store.files("b") == []
    assert store.file(one.id, "a") == one
    for name, salt in ((one.id, "b"), ("file-none", "a"), ("../state/lock", "a")):
        with pytest.raises(APIError, match="there is no file"):
            store.file(name, salt)
    store.remove_file(one)
    assert not store.path(one).exists()
    with pytest.raises(APIError):
        store.file(one.id, "a")
    store.close()


def test_what_was_kept_is_there_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    made = batch(store)
    store.change(made.id, "in_progress", total=2)
    store.add_answer(made.id, 2, {"custom_id": "b"}, failed=True)
    store.close()
    store = Store(tmp_path / "state")
    again = store.batch(made.id, "a")
    assert (again.status, again.total, again.completed, again.failed) == ("in_progress", 2, 0, 1)
    assert again.metadata == {"k": "v"}
    assert store.answered(made.id) == {2}
    assert store.unfinished() == again
    store.close()


def test_a_batch_ends_with_its_files(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    made = batch(store)
    for line, failed in ((3, False), (1, False), (2, True)):
        store.add_answer(made.id, line, {"line": line}, failed=failed)
    ended = store.end(store.batch(made.id), "completed")
    assert store.batch(made.id) == ended
    assert (ended.status, ended.completed, ended.failed, ended.ends) == ("completed", 2, 1, True)
    lines = {}
    for name in (ended.output, ended.errors):
        assert name is not None
        text = store.path(store.file(name, "a")).read_text()
        lines[name] = [json.loads(line)["line"] for line in text.splitlines()]
    assert list(lines.values()) == [[1, 3], [2]]
    assert store.answered(made.id) == set()
    assert store.unfinished() is None
    assert store.change(made.id, "cancelling") == ended, "what has ended does not change"
    empty = store.end(batch(store, "batch_2"), "cancelled")
    assert (empty.output, empty.errors) == (None, None)
    store.close()


def test_a_batch_that_ends_names_no_files_but_those_of_its_answers(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    made = batch(store)
    before = store.change(made.id, "finalizing", output="file-old", errors="file-older")
    assert (before.output, before.errors) == ("file-old", "file-older")
    ended = store.end(before, "completed")
    assert (ended.output, ended.errors) == (None, None)
    store.close()


def test_a_status_changes_from_some_only(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    made = batch(store)
    store.change(made.id, "cancelling")
    assert store.change(made.id, "finalizing", of=("in_progress",)).status == "cancelling"
    store.close()


def test_askers_see_their_own(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    one, two, other = batch(store, "b1"), batch(store, "b2"), batch(store, "b3", "b")
    assert [found.id for found in store.batches("a")] == [two.id, one.id]
    assert [found.id for found in store.batches("b")] == [other.id]
    with pytest.raises(APIError, match="there is no batch"):
        store.batch(other.id, "a")
    assert store.unfinished() == one
    store.close()


def test_a_file_that_is_read_stays(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    made = batch(store)
    file = store.file(made.input, "a")
    with pytest.raises(APIError, match="still reads it"):
        store.remove_file(file)
    store.end(made, "cancelled")
    store.remove_file(file)
    store.close()


def test_a_folder_is_one_servers(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    with pytest.raises(InputError, match="another server uses it"):
        Store(tmp_path / "state")
    store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        store.files("a")
    Store(tmp_path / "state").close()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used"):
        Store(tmp_path / "file")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/batches.sqlite").write_text("no database" * 100)
    with pytest.raises(InputError, match="cannot be used"):
        Store(tmp_path / "broken")


def test_a_file_without_room_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    made = batch(store)
    store.change(made.id, "in_progress", of=("validating",))
    store.add_answer(made.id, 1, {"a": 1}, failed=False)
    store.add_answer(made.id, 2, {"b": 1}, failed=True)
    before = sorted((tmp_path / "state/files").iterdir())

    def parts() -> Iterator[bytes]:
        yield b"ab"
        raise OSError(28, "No space left on device")

    with pytest.raises(APIError, match="cannot keep it: No space left on device") as told:
        store.add_file("a", "x", "batch", parts())
    assert told.value.status == 507
    database = sqlite3.connect(tmp_path / "state/batches.sqlite")
    database.execute(
        "CREATE TRIGGER full BEFORE DELETE ON answers BEGIN SELECT RAISE(ABORT, 'x'); END"
    )
    with pytest.raises((APIError, sqlite3.Error)):
        store.end(store.batch(made.id), "completed")
    assert sorted((tmp_path / "state/files").iterdir()) == before
    assert store.files("a") == [store.file(made.input, "a")]
    database.execute("DROP TRIGGER full")
    database.close()
    ended = store.end(store.batch(made.id), "completed")
    assert (ended.completed, ended.failed) == (1, 1)
    (tmp_path / "state/files/file-1.partial").write_bytes(b"of a server that was killed")
    store.close()
    store = Store(tmp_path / "state")
    assert not list((tmp_path / "state/files").glob("*.partial"))
    assert len(store.files("a")) == 3
    store.close()
