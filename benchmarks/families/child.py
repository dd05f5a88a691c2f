"""A child process for one type, so that a crash, a hang or greed for memory is its own.

It is forked from this process, which has imported what is slow to import and runs no thread.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from benchmarks.families.stages import prove
from optc.system.processes.child_job import anonymous_bytes

_POLL_S = 0.2
#: Last lines of a dead child's output among which its error is looked for.
_QUOTED_LINES = 3


def measured(
    kind: str,
    last: str,
    timeout_s: float,
    max_bytes: int,
    known: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
) -> dict[str, Any]:
    """Proofs of a type, up to the stage ``last``, by a child that may take so much time
    and memory; where it dies, what it had proved by then, and why it died. What is ``known`` of
    the type is not proved again, where the next stage does not need it. Recipes get the options
    ``sets``."""
    with tempfile.TemporaryDirectory(prefix="optc-families-") as name:
        folder = Path(name)
        kept, log = folder / "kept.json", folder / "log"
        fork = multiprocessing.get_context("fork")
        process = fork.Process(target=_work, args=(kind, last, folder, kept, log, known, sets))
        process.start()
        ending = _watch(process, time.monotonic() + timeout_s, max_bytes)
        found: dict[str, Any] = {"stages": [], "reason": "start"}
        if kept.exists():
            found = json.loads(kept.read_text())
        stage = found.pop("trying", "")
        if stage:
            said = last_error(log.read_text(errors="replace")).replace(name, "the folder")
            found["reason"] = f"{stage}: {ending or said}"
        return found


def last_error(output: str) -> str:
    """The error that a dead child's output ends with, with what follows where its own line says
    nothing but its type."""
    lines = output.strip().splitlines()[-_QUOTED_LINES:]
    at = next((at for at in reversed(range(len(lines))) if ": " in lines[at]), None)
    if at is None:
        return ""
    said = lines[at].strip()
    return f"{said} {lines[at + 1].strip()}" if said.endswith(":") and lines[at + 1 :] else said


def _work(
    kind: str,
    last: str,
    folder: Path,
    kept: Path,
    log: Path,
    known: Mapping[str, Any] | None,
    sets: Sequence[str],
) -> None:
    """In the child: prove, and keep what is known after each stage."""
    output = os.open(log, os.O_CREAT | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    torch.set_num_threads(1)
    prove(kind, last, folder, lambda found: kept.write_text(json.dumps(found)), known, sets)


def _watch(process: BaseProcess, end: float, max_bytes: int) -> str:
    """Wait for the child; why it was stopped, or nothing if it ended itself."""
    while process.is_alive():
        process.join(_POLL_S)
        reason = ""
        if time.monotonic() > end:
            reason = "it takes too long"
        elif process.pid and anonymous_bytes(process.pid) > max_bytes:
            reason = f"it takes more than {max_bytes >> 30} GiB"
        if reason:
            process.kill()
            process.join()
            return reason
    code = process.exitcode or 0
    return f"it was killed by signal {-code}" if code < 0 else ""
