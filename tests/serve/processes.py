"""Servers as processes of their own, on a free port."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_ADDRESS = re.compile(r"serving .* at (http://\S+)/v1")
#: Nothing takes so long unless it hangs.
PATIENCE_S = 120


@dataclass
class Server:
    """A running server.

    Attributes:
        process: It.
        url: Where it listens.
        lines: What it printed on stderr so far.
        logged: Lines of its access log so far.
        reading: Reads them meanwhile: a pipe that is full would hold the server up.
    """

    process: subprocess.Popen[str]
    url: str = ""
    lines: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    reading: threading.Thread | None = None

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.process.send_signal(signal.SIGTERM)

    def ended(self) -> tuple[int, list[dict[str, Any]]]:
        """Its exit code and the lines of its access log, once it has ended."""
        code = self.process.wait(PATIENCE_S)
        assert self.reading is not None
        self.reading.join()
        return code, [json.loads(line) for line in self.logged]


@contextmanager
def serving(
    *arguments: object, step_s: float = 0.0, reads: bool = True, **variables: str
) -> Iterator[Server]:
    """A server of toys with these arguments of ``optc serve``.

    Args:
        arguments: Of the command.
        step_s: How long each step takes.
        reads: Read its access log.
        variables: Of its environment.
    """
    module = ("tests.support.children.serve_toy", "serve", "--port", "0")
    variables["OPTC_TEST_STEP_S"] = str(step_s)
    with started(*module, *map(str, arguments), reads=reads, **variables) as server:
        yield server


@contextmanager
def started(module: str, *arguments: str, reads: bool = True, **variables: str) -> Iterator[Server]:
    """A module that serves and says where, as a process.

    Args:
        module: Its name.
        arguments: Of its command line.
        reads: Read what it writes on stdout.
        variables: Of its environment.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **variables},
    )
    server = Server(process)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            server.lines.append(line)
            if found := _ADDRESS.search(line):
                server.url = found[1]
                break
        assert server.url, "".join(server.lines)
        drain = threading.Thread(target=lambda: server.lines.extend(process.stderr or ()))
        drain.start()
        if reads:
            read = lambda: server.logged.extend(process.stdout or ())  # noqa: E731
            server.reading = threading.Thread(target=read)
            server.reading.start()
        yield server
    finally:
        process.kill()
        process.wait()
        if server.url:
            drain.join()
        if server.reading is not None:
            server.reading.join()
        process.stderr.close()
        if process.stdout is not None:
            process.stdout.close()
