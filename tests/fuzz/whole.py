"""Whole commands as child processes: exit codes, what they print, and what they leave behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.fuzz.form import Draw, FileFormat, Materials, write_files
from tests.fuzz.formats import FORMATS
from tests.fuzz.outcome import ROOT, Outcome

#: How optc is started.
OPTC = (sys.executable, "-m", "optc")
#: Exit codes that a damaged input may give.
_REFUSALS = frozenset({2, 3, 4, 5})
_OUTPUT = "output"
#: Prime to the shares' sum, so that turns come by all of them.
_STRIDE = 37


@dataclass(frozen=True)
class Command:
    """A command and what is damaged for it.

    Attributes:
        name: Of optc's command.
        format: Whose inputs it gets.
        base: The undamaged folder that they are put into: ``model`` or ``artifact``.
        arguments: What follows the command; ``{folder}`` is the damaged folder, ``{model}`` the
            undamaged model.
        share: How many of a hundred runs are of this kind.
    """

    name: str
    format: str
    base: str
    arguments: tuple[str, ...]
    share: int


_COMPILE = ("{folder}", "--no-gates", "-o", f"{{folder}}/../{_OUTPUT}/a")
_RUN = ("{folder}", "--prompt", "def f(x):", "--max-tokens", "4", "--threads", "1")
_EVAL = ("{folder}", "--text", "{folder}/text.jsonl", "--reference", "{model}")
COMMANDS = (
    Command("compile", "config", "model", _COMPILE, 14),
    Command("compile", "tokenizer-files", "model", _COMPILE, 12),
    Command("compile", "safetensors", "model", _COMPILE, 8),
    Command("compile", "recipe", "model", (*_COMPILE, "--recipe", "{folder}/recipe.yaml"), 8),
    Command("eval", "text", "artifact", _EVAL, 4),
    Command("run", "manifest-digest", "artifact", _RUN, 14),
    Command("run", "manifest-bytes", "artifact", (*_RUN, "--json"), 6),
    Command("run", "artifact-tokenizer", "artifact", _RUN, 10),
    Command("inspect", "report", "artifact", ("{folder}",), 8),
    Command("inspect", "manifest-digest", "artifact", ("{folder}", "--json"), 8),
    Command("verify", "manifest-json", "artifact", ("{folder}",), 8),
)


@dataclass
class WholeTally:
    """Counts of whole commands.

    Attributes:
        codes: How many ended with each exit code, by command.
        findings: What must not be, and the input.
    """

    codes: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[tuple[Command, Draw, Outcome]] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """All commands."""
        return sum(codes.total() for codes in self.codes.values())

    def to_json(self) -> dict[str, Any]:
        """For the results' file."""
        kinds = Counter(outcome.kind for _, _, outcome in self.findings)
        return {
            "runs": self.runs,
            "exit_codes": {name: dict(sorted(c.items())) for name, c in sorted(self.codes.items())},
            "crashes": kinds["crash"],
            "tracebacks": kinds["raw"],
            "hangs": kinds["hang"],
            "wrong_exit_codes": kinds["exit code"],
            "leftovers": kinds["leftovers"],
            "unclear_errors": kinds["unclear"],
        }


def run_whole(materials: Materials, count: int, seed: int, limit_s: float) -> WholeTally:
    """Run whole commands on damaged inputs.

    Args:
        materials: Undamaged ones.
        count: How many.
        seed: Of the inputs.
        limit_s: Seconds that a damaged input may add to what an undamaged one takes.
    """
    tally, usual = WholeTally(), {}
    for index in range(count):
        command = _command(index)
        form = FORMATS[command.format]()
        assert isinstance(form, FileFormat)
        form.samples = form.read(materials)
        if command not in usual:
            usual[command] = _seconds(command, form, materials)
        draw = Draw.of(f"whole-{command.name}-{form.name}", seed, index)
        outcome, code = _run(command, form.make(draw), materials, usual[command] * 3 + limit_s)
        tally.codes.setdefault(command.name, Counter())[code] += 1
        if outcome.found:
            tally.findings.append((command, draw, outcome))
    return tally


def _command(index: int) -> Command:
    """Commands in turns, each by its share; the same ones in every run."""
    every = [command for command in COMMANDS for _ in range(command.share)]
    return every[index * _STRIDE % len(every)]


def _seconds(command: Command, form: FileFormat, materials: Materials) -> float:
    """What the command takes with an undamaged input; it must succeed."""
    started = time.monotonic()
    outcome, code = _run(command, form.samples[0], materials, 600)
    if code != "0":
        raise RuntimeError(f"{command} fails on an undamaged input: {code}\n{outcome.details}")
    return time.monotonic() - started


def _run(command: Command, files: Any, materials: Materials, limit_s: float) -> tuple[Outcome, str]:
    """What became of one command, and its exit code."""
    with TemporaryDirectory(prefix="optc-fuzz-") as name:
        folder, output = Path(name) / "input", Path(name) / _OUTPUT
        shutil.copytree(getattr(materials, command.base), folder)
        output.mkdir()
        write_files(folder, files)
        arguments = [
            part.format(folder=folder, model=materials.model) for part in command.arguments
        ]
        ended = _ended([command.name, *arguments], Path(name), limit_s)
        if ended is None:
            return Outcome("hang", "hang", command.name), "none"
        left = sorted(path.name for path in output.iterdir())
        expected = ["a"] if ended.returncode == 0 and command.name == "compile" else []
        return _judged(command, ended, left, expected), str(ended.returncode)


def _ended(
    arguments: Sequence[str], folder: Path, limit_s: float
) -> subprocess.CompletedProcess[str] | None:
    """The finished command; None where it had to be killed, with all of its children."""
    (folder / "tmp").mkdir()
    own = {
        "PYTHONPATH": str(ROOT),
        "OPTC_CACHE": str(folder / "cache"),
        "TMPDIR": str(folder / "tmp"),
    }
    process = subprocess.Popen(
        [*OPTC, *arguments],
        cwd=folder,
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def _judged(
    command: Command,
    ended: subprocess.CompletedProcess[str],
    left: list[str],
    expected: list[str],
) -> Outcome:
    """The outcome of a finished command: accepted, refused, or what is wrong with it."""
    code, details = ended.returncode, (ended.stdout + ended.stderr)[-8000:]
    if code < 0:
        return Outcome("crash", signal.Signals(-code).name, command.name, details)
    if "Traceback (most recent call last)" in ended.stderr:
        last = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', ended.stderr)
        return Outcome("raw", f"exit {code}", ":".join(last[-1]) if last else "", details)
    if code not in _REFUSALS | {0}:
        return Outcome("exit code", f"exit {code}", command.name, details)
    if left != expected:
        return Outcome("leftovers", ", ".join(left), command.name, details)
    if code == 0:
        return Outcome("accepted")
    errors = ended.stderr.count("\nerror: ") + ended.stderr.startswith("error: ")
    if "--json" in command.arguments:
        errors = ended.stdout.count('"schema": "optc.error.v1"')
    if errors != 1:
        return Outcome("unclear", f"{errors} errors", command.name, details)
    return Outcome("refused", f"exit {code}")
