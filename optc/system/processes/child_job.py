"""Work in a process of its own: a compiler may crash, hang, take all memory or write to the
terminal, and none of that reaches the process that asks.

The request and the answer are JSON texts in files. A refusal (an `OptcError` of the child) is
raised anew here; however else the child ends, the error quotes what it said last.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optc.errors import InputError, OptcError, UnavailableError, UnsupportedError
from optc.system.full_disk import check_room, full_temporary, temporary_files
from optc.system.processes.child_process import child_command, child_environment
from optc.system.scratch import Scratch

#: Time between two looks at the memory of a child, in seconds.
_POLL_S = 0.1
#: Last lines of a dead child's output that its error quotes.
_QUOTED_LINES = 6


@dataclass(frozen=True)
class ChildJob:
    """A kind of work.

    Attributes:
        module: Module of the child, which calls `answer`.
        what: Names its process in messages: ``the compiler``.
        where: Of its errors: ``tvm backend``.
        hint: What to do where it died.
        timeout_s: Longest time in seconds.
    """

    module: str
    what: str
    where: str
    hint: str
    timeout_s: float

    def run(self, request: str, max_bytes: int = 0) -> Any:
        """Do the work and return its answer; arguments and errors as of `started`."""
        with self.started(request, max_bytes) as finish:
            return finish()

    @contextmanager
    def started(
        self, request: str, max_bytes: int = 0, looking: Callable[[], None] | None = None
    ) -> Iterator[Callable[[], Any]]:
        """Start the work; gives a function that waits for its answer. The process is gone at the
        end of the ``with`` block, also where that function was not called.

        Args:
            request: What the child is given.
            max_bytes: Anonymous memory that the child may take; 0 is no limit.
            looking: Called now and then while the child works.

        Raises:
            InputError, UnsupportedError, UnavailableError: From that function: what the child says,
                or that it crashed, took too long or too much memory.
        """
        with Scratch("child") as folder:
            asked, result, log = (Path(folder) / name for name in ("request", "result", "log"))
            with temporary_files():
                asked.write_text(request, encoding="utf-8")
            process = self._start(asked, result, log)
            end = time.monotonic() + self.timeout_s
            try:
                yield lambda: self._answer(_watch(process, end, max_bytes, looking), result, log)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def _start(self, asked: Path, result: Path, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as stream:
            return subprocess.Popen(
                child_command(self.module, str(asked), str(result)),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env=child_environment(),
            )

    def _answer(self, ending: str, result: Path, log: Path) -> Any:
        if not result.exists():
            lines = log.read_text(errors="replace").strip().splitlines()
            said = " | ".join(line.strip() for line in lines[-_QUOTED_LINES:])
            if (full := full_temporary(said)) is not None:
                raise full
            check_room(log.parent)
            raise UnavailableError(
                f"{self.what} {ending or f'did not finish within {self.timeout_s:.0f} s'}"
                + (f"; its last lines: {said}" if said else ""),
                where=self.where,
                hint=self.hint,
            )
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        if "error" in found:
            raise _as_error(found["error"])
        return found["answer"]


def answer(arguments: Sequence[str], work: Callable[[str], Any]) -> int:
    """The child's side: do ``work`` on the request that the command line names, and write what it
    returns (JSON) or how it refused; returns the exit status."""
    asked, result = map(Path, arguments)
    try:
        found = {"answer": work(asked.read_text(encoding="utf-8"))}
    except OptcError as error:
        found = {"error": error.to_json()}
    whole = result.with_suffix(".part")
    whole.write_text(json.dumps(found), encoding="utf-8")
    whole.replace(result)  # a child that is stopped while it writes has given no answer
    return int("error" in found)


def _watch(
    process: subprocess.Popen[bytes],
    end: float,
    max_bytes: int,
    looking: Callable[[], None] | None,
) -> str:
    """Wait for the process; how it ended, in words, or nothing if it is still there at ``end``."""
    while (left := end - time.monotonic()) > 0:
        try:
            status = process.wait(min(left, _POLL_S) if max_bytes or looking else left)
        except subprocess.TimeoutExpired:
            if looking is not None:
                looking()
            if max_bytes and anonymous_bytes(process.pid) > max_bytes:
                return f"took more than {max_bytes} bytes of memory"
            continue
        return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    return ""


def anonymous_bytes(pid: int) -> int:
    """Anonymous memory of a process; 0 if it has ended (Linux only; elsewhere 0)."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in text.splitlines() if line.startswith("RssAnon:")]
    return int(sizes[0]) * 1024 if sizes else 0


def _as_error(error: dict[str, str]) -> OptcError:
    known = {kind.kind: kind for kind in (InputError, UnavailableError)}
    kind = known.get(error["kind"], UnsupportedError)
    return kind(error["message"], where=error["where"], hint=error["hint"])
