"""`AnswersFile`: answers in the order of the requests, which a run that was killed goes on with.

A line is appended by one write. While a run is unfinished, ``.NAME.resume.json`` beside the file
says what it was begun with; the next run of the same goes on behind the last whole line.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from optc.errors import InputError
from optc.system.safe_json import JSONError, parse_json
from optc.system.whole_file import write_whole

#: How `AnswersFile.begun` differs, where "another" does not go with its name.
_OTHER = {"options": "other options"}


class AnswersFile:
    """A file of answers, open and locked while the block runs.

    Args:
        path: The file.
        begun: What the answers depend on, by name: JSON values.

    Attributes:
        resumed: Lines that were there.
        lines: Lines that are there now.
        failed: Those of them that are errors.

    Raises:
        InputError: It cannot be written, another process writes it, it holds the answers of a
            finished run, or those of a run that was begun with something else.
    """

    def __init__(self, path: Path, begun: Mapping[str, Any]) -> None:
        self.path = path
        self.resumed = self.failed = self.lines = 0
        self._resume = path.with_name(f".{path.name}.resume.json")
        self._begun = json.loads(json.dumps(begun))  # as it is read again
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            self._lock()
            self._find_place()
            self.lines = self.resumed
        except BaseException:
            os.close(self._file)
            raise

    def append(self, line: Mapping[str, Any]) -> None:
        """Add an answer.

        Raises:
            InputError: It cannot be written, as on a full disk.
        """
        left = memoryview((json.dumps(line, ensure_ascii=False) + "\n").encode())
        try:
            while left:
                left = left[os.write(self._file, left) :]
            self.lines += 1
        except OSError as error:
            raise self._unwritable(error) from error

    def finish(self) -> None:
        """All answers are there."""
        os.fsync(self._file)
        self._resume.unlink(missing_ok=True)

    def __enter__(self) -> AnswersFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                "another process writes it",
                where=str(self.path),
                hint="wait for its end, or give another file",
            ) from error

    def _find_place(self) -> None:
        """Go on behind the last whole line, if the same was begun; else begin."""
        if os.fstat(self._file).st_size == 0:
            self._write_resume()
            return
        self._check_begun()
        rest = b""
        with open(self._file, "rb", closefd=False) as stream:
            stream.seek(0)
            end = 0
            for line in stream:
                if not line.endswith(b"\n"):
                    rest = line
                    break
                end += len(line)
                self.resumed += 1
                self.failed += self._is_error(line)
        if rest:  # the last write was cut short
            os.truncate(self._file, end)

    def _check_begun(self) -> None:
        try:
            begun = parse_json(self._resume.read_bytes(), finite=False)
        except FileNotFoundError as error:
            raise InputError(
                "it is there already",
                where=str(self.path),
                hint="give another file, or remove it",
            ) from error
        except (OSError, JSONError) as error:
            raise self._other("something that cannot be read") from error
        if not isinstance(begun, dict):
            raise self._other("something that cannot be read")
        keys = sorted(self._begun.keys() | begun.keys())
        differ = [key for key in keys if begun.get(key) != self._begun.get(key)]
        if differ:
            raise self._other(" and ".join(_OTHER.get(key, f"another {key}") for key in differ))

    def _other(self, what: str) -> InputError:
        return InputError(
            f"it holds answers of a run that was begun with {what}",
            where=str(self.path),
            hint=f"remove it to begin anew, or give another file; {self._resume} says more",
        )

    def _is_error(self, line: bytes) -> bool:
        try:
            value = parse_json(line, finite=False)
        except JSONError as error:
            raise InputError(
                f"line {self.resumed} is no answer: {error}",
                where=str(self.path),
                hint="remove it to begin anew, or give another file",
            ) from error
        return isinstance(value, dict) and value.get("error") is not None

    def _write_resume(self) -> None:
        try:
            write_whole(self._resume, (json.dumps(self._begun, indent=2) + "\n").encode())
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> InputError:
        reason = error.strerror or str(error)
        return InputError(f"cannot be written: {reason}", where=str(self.path))
