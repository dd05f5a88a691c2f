"""`Store`: files, batches and their answers in a folder.

Each change is one transaction, which is on the disk when the call returns: a process that is killed
loses nothing that was done. Calls wait for the disk: they belong on a thread.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from optc.errors import InputError
from optc.serve.api_errors import NO_ROOM, APIError
from optc.serve.batches.records import UNFINISHED, Batch, StoredFile

#: Ends the names of files that are being written.
_PART = ".partial"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
  id TEXT PRIMARY KEY, salt TEXT NOT NULL, name TEXT NOT NULL, purpose TEXT NOT NULL,
  bytes INTEGER NOT NULL, created INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS batches (
  id TEXT PRIMARY KEY, salt TEXT NOT NULL, status TEXT NOT NULL, record TEXT NOT NULL,
  place INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS answers (
  batch TEXT NOT NULL, line INTEGER NOT NULL, failed INTEGER NOT NULL, answer TEXT NOT NULL,
  PRIMARY KEY (batch, line)
) WITHOUT ROWID;
"""


@contextmanager
def room() -> Iterator[None]:
    """Say of a disk that is full, or fails, what it is for who asked.

    Raises:
        APIError: It is.
    """
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"the server cannot keep it: {reason}"
        raise APIError(NO_ROOM, message, code="no_room") from error


class Store:
    """Files and batches in a folder, which one process has at a time.

    Args:
        folder: Made if it is not there.

    Raises:
        InputError: It cannot be used, or another process uses it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "files"
        self._lock = threading.Lock()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._made: list[Path] = []  # by the change that goes on
            self._held = (folder / "lock").open("w")
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._database = sqlite3.connect(folder / "batches.sqlite", check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.executescript(_SCHEMA)
            for part in self._folder.glob(f"file-*{_PART}"):  # of a server that was killed
                part.unlink()
        except BlockingIOError as error:
            raise InputError("another server uses it", where=f"--state {folder}") from error
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"cannot be used: {error}", where=f"--state {folder}") from error

    def close(self) -> None:
        """Let others use the folder."""
        with self._lock:
            self._database.close()
            self._held.close()

    def add_file(self, salt: str, name: str, purpose: str, parts: Iterable[bytes]) -> StoredFile:
        """Keep a file, whole or not at all.

        Raises:
            APIError: There is no room for it.
        """
        with self._change() as database:
            return self._add_file(database, salt, name, purpose, parts)

    def file(self, name: str, salt: str) -> StoredFile:
        """The file of an id.

        Raises:
            APIError: There is none that this asker may see.
        """
        found = self._rows("SELECT * FROM files WHERE id = ? AND salt = ?", name, salt)
        if not found:
            raise APIError(404, f"there is no file {name[:128]!r}", "file_id", "file_not_found")
        return StoredFile(*found[0])

    def files(self, salt: str) -> list[StoredFile]:
        """All files of an asker, the latest first."""
        rows = self._rows("SELECT * FROM files WHERE salt = ? ORDER BY rowid DESC", salt)
        return [StoredFile(*row) for row in rows]

    def path(self, file: StoredFile) -> Path:
        """The file of its contents."""
        return self._folder / file.id

    def input(self, batch: Batch) -> Path:
        """The file of the lines of a batch."""
        return self._folder / batch.input

    def remove_file(self, file: StoredFile) -> None:
        """Forget a file.

        Raises:
            APIError: A batch still reads it.
        """
        with self._change() as database:
            for row in database.execute("SELECT record FROM batches WHERE salt = ?", (file.salt,)):
                batch = _batch(row[0])
                if batch.input == file.id and not batch.ends:
                    raise APIError(400, f"the batch {batch.id} still reads it", "file_id")
            database.execute("DELETE FROM files WHERE id = ?", (file.id,))
        self.path(file).unlink(missing_ok=True)

    def add_batch(self, batch: Batch) -> None:
        """Keep a new batch."""
        with self._change() as database:
            row = (batch.id, batch.salt, batch.status, _text(batch))
            database.execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?, (SELECT count(*) FROM batches))", row
            )

    def batch(self, name: str, salt: str | None = None) -> Batch:
        """The batch of an id; with a salt, only if it is the asker's.

        Raises:
            APIError: There is none.
        """
        rows = self._rows("SELECT record FROM batches WHERE id = ?", name)
        batch = _batch(rows[0][0]) if rows else None
        if batch is None or (salt is not None and batch.salt != salt):
            raise APIError(404, f"there is no batch {name[:128]!r}", "batch_id", "batch_not_found")
        return self._counted(batch)

    def batches(self, salt: str) -> list[Batch]:
        """All batches of an asker, the latest first."""
        query = "SELECT record FROM batches WHERE salt = ? ORDER BY place DESC"
        return [self._counted(_batch(row[0])) for row in self._rows(query, salt)]

    def unfinished(self) -> Batch | None:
        """The oldest batch that has work left."""
        marks = ", ".join("?" * len(UNFINISHED))
        query = f"SELECT record FROM batches WHERE status IN ({marks}) ORDER BY place LIMIT 1"
        rows = self._rows(query, *UNFINISHED)
        return self._counted(_batch(rows[0][0])) if rows else None

    def change(
        self, name: str, status: str, *, of: Sequence[str] = UNFINISHED, **more: Any
    ) -> Batch:
        """Give a batch a status, if it has one ``of`` some; gives what it is then."""
        with self._change() as database:
            (row,) = database.execute("SELECT record FROM batches WHERE id = ?", (name,))
            batch = _batch(row[0])
            if batch.status in of:
                batch = _changed(batch, status, **more)
                _write(database, batch)
        return self._counted(batch)

    def add_answer(self, batch: str, line: int, answer: dict[str, Any], *, failed: bool) -> None:
        """Keep the answer of a line."""
        row = (batch, line, int(failed), json.dumps(answer))
        with self._change() as database:
            database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", row)

    def answered(self, batch: str) -> set[int]:
        """The lines of a batch that have an answer."""
        return {row[0] for row in self._rows("SELECT line FROM answers WHERE batch = ?", batch)}

    def end(self, batch: Batch, status: str) -> Batch:
        """Make files of a batch's answers, and end it, in one."""
        with self._change() as database:
            made: dict[str, str | None] = {}
            for key, failed in (("output", 0), ("errors", 1)):
                query = "SELECT answer FROM answers WHERE batch = ? AND failed = ? ORDER BY line"
                lines = database.execute(query, (batch.id, failed)).fetchall()
                parts = (f"{row[0]}\n".encode() for row in lines)
                name = f"{batch.id}_{key}.jsonl"
                made[key] = None
                if lines:
                    kept = self._add_file(database, batch.salt, name, "batch_output", parts)
                    made[key] = kept.id
            counted = _counts(database, batch.id)
            ended = _changed(batch, status, **made, completed=counted[0], failed=counted[1])
            _write(database, ended)
            database.execute("DELETE FROM answers WHERE batch = ?", (batch.id,))
        return ended

    def _add_file(
        self,
        database: sqlite3.Connection,
        salt: str,
        name: str,
        purpose: str,
        parts: Iterable[bytes],
    ) -> StoredFile:
        named = f"file-{uuid.uuid4().hex}"
        size = 0
        whole = self._folder / named
        beside = self._folder / f"{named}{_PART}"
        self._made += [beside, whole]
        with beside.open("xb") as stream:
            for part in parts:
                size += stream.write(part)
            stream.flush()
            os.fsync(stream.fileno())
        beside.rename(whole)
        found = StoredFile(named, salt, name, purpose, size, int(time.time()))
        database.execute(
            "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?)", tuple(asdict(found).values())
        )
        return found

    def _counted(self, batch: Batch) -> Batch:
        """A batch with the answers of now."""
        if batch.ends:
            return batch
        with self._lock:
            completed, failed = _counts(self._database, batch.id)
        return replace(batch, completed=completed, failed=failed)

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """All of the block is kept, or nothing of it.

        Raises:
            APIError: There is no room for it.
        """
        with self._lock, room():
            self._made.clear()
            try:
                with self._database:
                    yield self._database
            except BaseException:
                for file in self._made:
                    file.unlink(missing_ok=True)
                raise


def _counts(database: sqlite3.Connection, batch: str) -> tuple[int, int]:
    """Answers and failures of a batch."""
    query = (
        "SELECT coalesce(sum(failed = 0), 0), coalesce(sum(failed), 0) FROM answers WHERE batch = ?"
    )
    (found,) = database.execute(query, (batch,))
    return int(found[0]), int(found[1])


def _changed(batch: Batch, status: str, **more: Any) -> Batch:
    times = {**(batch.times or {}), status: int(time.time())}
    return replace(batch, status=status, times=times, **more)


def _write(database: sqlite3.Connection, batch: Batch) -> None:
    row = (batch.status, _text(batch), batch.id)
    database.execute("UPDATE batches SET status = ?, record = ? WHERE id = ?", row)


def _text(batch: Batch) -> str:
    return json.dumps({f.name: getattr(batch, f.name) for f in fields(batch)})


def _batch(text: str) -> Batch:
    values = json.loads(text)
    wrong: Sequence[Any] = values.pop("wrong")
    return Batch(**values, wrong=tuple(wrong))
