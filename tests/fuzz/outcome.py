"""What became of an input, and where."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from optc.cli.output import print_error
from optc.errors import OptcError
from tests.fuzz.form import WrongError

#: The repository.
ROOT = Path(__file__).parents[2]
#: Folders of the product: where a finding is placed, rather than in a library that it calls.
_OURS = ("optc", "passes", "backends", "recipes")
#: Errors that no input may cause, of whatever type they are.
_FATAL = frozenset({"EngineError"})
_FRAME = re.compile(r'File "([^"]+)", line (\d+)(?:, in | in )(\S+)')


@dataclass(frozen=True)
class Outcome:
    """What became of an input.

    Attributes:
        kind: ``accepted``, ``refused``, or what is a finding: ``raw`` (an exception that is not
            optc's), ``crash`` or ``hang``.
        what: Name of the exception or signal.
        where: File, line and function of optc's innermost frame.
        details: The traceback.
    """

    kind: str
    what: str = ""
    where: str = ""
    details: str = ""

    @property
    def found(self) -> bool:
        """True if it is a finding."""
        return self.kind not in ("accepted", "refused")

    @property
    def key(self) -> tuple[str, str, str]:
        """Findings of one key have one cause, as far as can be told."""
        return self.kind, self.what, self.where


def outcome_of(act: Callable[[], None]) -> Outcome:
    """Run ``act`` and say what became of it; an error of optc must also print, in both forms."""
    try:
        try:
            act()
        except OptcError as error:
            if type(error).__name__ in _FATAL:
                raise
            print_error(error, as_json=True)
            print_error(error, as_json=False)
            return Outcome("refused", type(error).__name__)
    except BaseException as error:  # noqa: BLE001 - every kind of exception is counted
        text = "".join(traceback.format_exception(error))[-8000:]
        cause = error.__cause__ if type(error).__name__ in _FATAL and error.__cause__ else error
        return Outcome("raw", _name_of(cause), place_of(cause.__traceback__), text)
    return Outcome("accepted")


def _name_of(error: BaseException) -> str:
    """The exception's type; of what the fuzzer itself expects, what that was."""
    return error.what if isinstance(error, WrongError) else type(error).__name__


def place_of(trace: TracebackType | None) -> str:
    """The innermost frame of the product, or the innermost one at all."""
    frames = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(trace)]
    return _innermost(frames)


def place_in(dump: str) -> str:
    """The same in what `faulthandler` wrote, of the thread that runs inputs."""
    frames = [(file, int(line), name) for file, line, name in _FRAME.findall(main_thread(dump))]
    return _innermost(frames[::-1])


def main_thread(dump: str) -> str:
    """The part of a dump about the thread that runs inputs, or that failed."""
    threads = re.split(r"(?m)^(?=Thread|Current thread)", dump)
    trying = [part for part in threads if " in _tried" in part]
    return [*trying, *(part for part in threads if part.startswith("Current thread")), dump][0]


def _innermost(frames: list[tuple[str, int, str]]) -> str:
    named = [(_relative(file), line, name) for file, line, name in frames]
    ours = [frame for frame in named if frame[0].split("/")[0] in _OURS]
    file, line, name = (ours or named or [("?", 0, "?")])[-1]
    return f"{file}:{line} {name}"


def _relative(file: str) -> str:
    path = Path(file).resolve()
    return (
        path.relative_to(ROOT).as_posix()
        if path.is_relative_to(ROOT)
        else "/".join(path.parts[-3:])
    )
