"""Runs many inputs of a format in forked workers, so that a crash or a hang is a count.

A worker runs inputs one after the other and says what became of each. One that dies, or says
nothing for too long, is replaced, and the input it was at is the finding.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.fuzz.form import Draw, Format
from tests.fuzz.outcome import Outcome, main_thread, outcome_of, place_in

#: Seconds that an input may take.
LIMIT_S = 10.0
#: Address space that a worker may take beyond what it was forked with.
_MEMORY_BYTES = 2 << 30
#: A worker is replaced after so many inputs, so that what they leave behind does not add up.
_INPUTS_EACH = 500
#: For a worker to open its format: imports, and an engine.
_OPEN_S = 120.0
_ABORT_S = 5.0


@dataclass
class Finding:
    """Outcomes of one key: the first of them, its input, and how many there were."""

    outcome: Outcome
    draw: Draw
    count: int = 1


@dataclass
class Tally:
    """Counts of a run.

    Attributes:
        accepted: Inputs that optc took.
        refused: Those it refused, by type of error.
        findings: What must not be, by `Outcome.key`.
    """

    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    findings: dict[tuple[str, str, str], Finding] = field(default_factory=dict)

    @property
    def inputs(self) -> int:
        """All inputs."""
        found = sum(finding.count for finding in self.findings.values())
        return self.accepted + self.refused.total() + found

    def add(self, outcome: Outcome, draw: Draw) -> None:
        """Count an outcome."""
        if outcome.kind == "accepted":
            self.accepted += 1
        elif outcome.kind == "refused":
            self.refused[outcome.what] += 1
        elif outcome.key in self.findings:
            self.findings[outcome.key].count += 1
        else:
            self.findings[outcome.key] = Finding(outcome, draw)

    def to_json(self) -> dict[str, Any]:
        """For the results' file."""
        by_kind: dict[str, Counter[str]] = {"crash": Counter(), "raw": Counter(), "hang": Counter()}
        for finding in self.findings.values():
            by_kind[finding.outcome.kind][finding.outcome.what] += finding.count
        return {
            "inputs": self.inputs,
            "accepted": self.accepted,
            "refused": dict(sorted(self.refused.items())),
            "crashes": dict(by_kind["crash"]),
            "raw_exceptions": dict(by_kind["raw"]),
            "hangs": by_kind["hang"].total(),
        }


def hunt(form: Format[Any], draws: Sequence[Draw], *, limit_s: float = LIMIT_S) -> Tally:
    """Run the inputs of ``draws``.

    Args:
        form: Prepared already: workers are forks of this process.
        draws: The inputs.
        limit_s: Seconds that one may take.
    """
    tally, done = Tally(), 0
    while done < len(draws):
        with TemporaryDirectory(prefix="optc-fuzz-") as folder:
            for outcome in _worker(form, draws[done : done + _INPUTS_EACH], Path(folder), limit_s):
                tally.add(outcome, draws[done])
                done += 1
    return tally


def _worker(
    form: Format[Any], draws: Sequence[Draw], folder: Path, limit_s: float
) -> Iterator[Outcome]:
    """What became of each input, up to the first that the worker does not outlive."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    process = context.Process(target=_serve, args=(form, draws, folder, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        opened = _received(ours, _OPEN_S)
        if opened != "open":
            process.kill()
            raise RuntimeError(f"{form.name}: a worker did not open: {opened or 'it died'}")
        for _ in draws:
            outcome = _received(ours, limit_s)
            if outcome is None:
                yield _lost(process, folder / "dump")
                return
            if isinstance(outcome, str):
                raise RuntimeError(f"{form.name}: an input could not be made:\n{outcome}")
            yield outcome
    finally:
        process.kill()
        process.join()
        ours.close()


def _received(pipe: Connection, limit_s: float) -> Any:
    """What the worker says next; None where it died or says nothing in time."""
    try:
        return pipe.recv() if pipe.poll(limit_s) else None
    except EOFError:
        return None


def _lost(process: multiprocessing.process.BaseProcess, dump: Path) -> Outcome:
    """The outcome of an input whose worker died, or hangs and is made to dump its frames."""
    process.join(0.5)
    hangs = process.is_alive()
    if hangs:
        os.kill(process.pid or 0, signal.SIGABRT)
        process.join(_ABORT_S)
        process.kill()
        process.join()
    text = dump.read_text(errors="replace")
    if hangs:
        return Outcome("hang", "hang", place_in(text), main_thread(text)[-8000:])
    code = process.exitcode or 0
    what = signal.Signals(-code).name if code < 0 else f"exit {code}"
    return Outcome("crash", what, place_in(text), text[-8000:])


def _serve(form: Format[Any], draws: Sequence[Draw], folder: Path, pipe: Connection) -> None:
    """The worker: opens the format and runs the inputs."""
    _silence()
    with (folder / "dump").open("w") as dump:
        place = folder / "input"
        place.mkdir()
        form.open(place)
        # Last, and anew: an engine's libraries bring handlers of their own, and what is enabled
        # already (by pytest) is not installed again.
        faulthandler.disable()
        faulthandler.enable(dump)
        _bound_memory()
        pipe.send("open")
        for draw in draws:
            pipe.send(_tried(form, draw))
        pipe.close()
        shutil.rmtree(place, ignore_errors=True)
        os._exit(0)  # threads of engines that an input left behind are not waited for


def _silence() -> None:
    """Nothing is asked for and nothing shown; but what a terminal cannot print cannot be here."""
    silent = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(silent, number)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _tried(form: Format[Any], draw: Draw) -> Outcome | str:
    """What became of an input; a text where it is the fuzzer that fails."""
    try:
        value = form.make(draw)
    except Exception:  # noqa: BLE001 - told to the process that started this one
        return traceback.format_exc(limit=-9)
    return outcome_of(lambda: form.run(value))


def _bound_memory() -> None:
    """Let what takes gigabytes fail, rather than this machine."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def smallest(form: Format[Any], finding: Finding, *, limit_s: float = LIMIT_S) -> Draw:
    """The finding's input with as few changes as still give it."""
    draw, at = finding.draw, 0
    while at < len(draw.edits):
        fewer = Draw(draw.sample, draw.edits[:at] + draw.edits[at + 1 :])
        if finding.outcome.key in hunt(form, [fewer], limit_s=limit_s).findings:
            draw = fewer
        else:
            at += 1
    return draw
