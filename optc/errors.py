"""The error tree. A user error says what, where and what to do, and never shows a traceback.

Exit codes (docs/cli.md lists all): 2 bad usage or input, 3 target or dependency not available,
4 a gate failed, 5 an artifact is damaged, 70 internal error (an exception outside this tree, or an
engine that failed; its traceback is shown).
"""

from __future__ import annotations

from typing import ClassVar


class OptcError(Exception):
    """Base of all errors that optc raises on purpose.

    Args:
        message: What is wrong, one sentence.
        where: The file, pass, node, option or request it concerns.
        hint: What the user can do about it.
    """

    kind: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        self.message = message
        self.where = where
        self.hint = hint
        super().__init__(self.render())

    def render(self) -> str:
        """The message as one text: ``where: message (hint)``."""
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text} ({self.hint})" if self.hint else text

    def to_json(self) -> dict[str, str]:
        """The value of the ``error`` key in ``--json`` output."""
        return {
            "kind": self.kind,
            "message": self.message,
            "where": self.where,
            "hint": self.hint,
        }


class InputError(OptcError):
    """Bad usage or bad input: a flag, a recipe, a model folder, a prompt."""

    kind = "input"


class UnsupportedError(InputError):
    """The model holds something that optc does not recognize or the backend cannot take."""

    kind = "unsupported"


class ArtifactError(InputError):
    """An artifact is missing files, corrupted, of another format, or not as a compile writes it."""

    kind = "artifact"
    exit_code = 5


class NoArtifactError(ArtifactError):
    """There is no artifact where one was named, as after a slip in the path."""

    kind = "input"
    exit_code = InputError.exit_code


class SignatureError(ArtifactError):
    """An artifact is not signed by the key, or is not as it was when it was signed."""

    kind = "signature"


class RequestError(InputError):
    """One generation request is invalid; other requests are not concerned."""

    kind = "request"


class RequestTypeError(RequestError, TypeError):
    """A request was made with a value of a type that is never right: the calling code is wrong."""


class UnavailableError(OptcError):
    """A target, CPU feature or optional dependency is not available here."""

    kind = "unavailable"
    exit_code = 3


class BusyError(OptcError):
    """As many requests wait as may (``max_waiting``); the same request may be made again later."""

    kind = "busy"
    exit_code = 3


class EngineError(OptcError, RuntimeError):
    """A loaded engine failed or was closed; its cause, if any, is the original exception."""

    kind = "engine"
    exit_code = 70


class ReplicaLostError(EngineError):
    """One of several replicas ended while it computed an answer; others go on. The request may be
    made again."""


class GateError(OptcError):
    """A gate of the recipe failed or could not be measured; no artifact was written."""

    kind = "gate"
    exit_code = 4
