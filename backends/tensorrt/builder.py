"""Run the builder in a process of its own, within a time and a memory limit."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from optc.backends.tensorrt.request import BuildRequest
from optc.child_process import child_command, child_environment
from optc.errors import OptcError, UnavailableError, UnsupportedError

#: Module that runs in the builder's process.
CHILD = "optc.backends.tensorrt.child"
#: Longest time that one engine may take.
TIMEOUT_S = 3600.0
_POLL_S = 0.1
_WHERE = "tensorrt backend"


def run_builder(
    request: BuildRequest,
    *,
    max_bytes: int = 0,
    timeout_s: float = TIMEOUT_S,
    child: str = CHILD,
) -> dict[str, Any]:
    """Build an engine; returns the builder's report.

    Args:
        request: What to build.
        max_bytes: Memory that the builder's process may have resident; 0 is no limit.
        timeout_s: Longest time in seconds.
        child: Module that does it.

    Raises:
        UnsupportedError: TensorRT refuses the model.
        UnavailableError: TensorRT is missing or cannot build for the GPUs, or its process crashed,
            took too long or too much memory. No engine is left behind.
    """
    with tempfile.TemporaryDirectory(prefix="optc-tensorrt-") as folder:
        asked, result, log = (Path(folder) / name for name in ("request", "result", "log"))
        asked.write_text(request.to_json())
        try:
            outcome = _run(child, [str(asked), str(result)], log, max_bytes, timeout_s)
            if not result.exists():
                raise _died(outcome, log)
            answer: dict[str, Any] = json.loads(result.read_text())
            if "error" in answer:
                raise _as_error(answer["error"])
        except OptcError:
            Path(request.engine).unlink(missing_ok=True)
            Path(request.table).unlink(missing_ok=True)
            raise
        report: dict[str, Any] = answer["report"]
        return report


def _run(child: str, arguments: list[str], log: Path, max_bytes: int, timeout_s: float) -> str:
    """Run the process to its end, or kill it; how it ended, in words."""
    with log.open("wb") as stream:
        process = subprocess.Popen(
            child_command(child, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=child_environment(),
        )
    try:
        return _watch(process, max_bytes, timeout_s)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _watch(process: subprocess.Popen[bytes], max_bytes: int, timeout_s: float) -> str:
    end = time.monotonic() + timeout_s
    while True:
        try:
            status = process.wait(_POLL_S)
        except subprocess.TimeoutExpired:
            status = None
        if status is not None:
            return f"was killed by signal {-status}" if status < 0 else f"ended with {status}"
        if time.monotonic() > end:
            return f"did not finish within {timeout_s:.0f} s"
        if max_bytes and resident_bytes(process.pid) > max_bytes:
            return f"took more than {max_bytes} bytes of memory"


def resident_bytes(pid: int) -> int:
    """Anonymous memory of a process; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in text.splitlines() if line.startswith("RssAnon:")]
    return int(sizes[0]) * 1024 if sizes else 0


def _died(how: str, log: Path) -> UnavailableError:
    lines = log.read_text(errors="replace").strip().splitlines()
    said = " | ".join(line.strip() for line in lines[-6:])
    return UnavailableError(
        f"the builder's process {how}" + (f"; its last lines: {said}" if said else ""),
        where=_WHERE,
        hint="building takes about four times the weights' size in memory;"
        " if there was enough, please report this model and recipe",
    )


def _as_error(error: dict[str, str]) -> OptcError:
    kind = UnavailableError if error["kind"] == UnavailableError.kind else UnsupportedError
    return kind(error["message"], where=error["where"], hint=error["hint"])
