"""The conventions of a model of speech: its prompt, tokens that it may not say, times."""

from __future__ import annotations

from msgspec import Struct

from optc.errors import RequestError
from optc.runtime.audio.mel import LogMel
from optc.system.foreign.typed_json import Count, Positive

#: File of an artifact that holds them.
CONVENTIONS_FILE = "speech.json"
TRANSCRIBE = "transcribe"


class Conventions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Conventions of a model of speech, as its folder states them.

    Attributes:
        features: How a sound becomes the encoder's input.
        start: Token that a transcript starts with.
        end: Token that ends it.
        languages: Tokens by code, such as ``en``; empty where the model knows one language.
        tasks: Tokens by name; empty where it only transcribes.
        no_timestamps: Token that asks for no timestamps. Those of times follow it, one for each
            ``precision``. None where there are none.
        no_speech: Token that says that nobody speaks; None where there is none.
        suppressed: Tokens that are never said.
        suppressed_first: Tokens that do not come first.
        most_tokens: Of a transcript, with its prompt.
        most_first_time: Largest first time, in steps of ``precision``; None are all.
        precision: Seconds between two times.
        layers: Of the decoder.
    """

    features: LogMel
    start: Count
    end: Count
    languages: dict[str, Count] = {}
    tasks: dict[str, Count] = {}
    no_timestamps: Count | None = None
    no_speech: Count | None = None
    suppressed: tuple[Count, ...] = ()
    suppressed_first: tuple[Count, ...] = ()
    most_tokens: Positive = 448
    most_first_time: Count | None = None
    precision: float = 0.02
    layers: Positive = 1

    @property
    def first_time(self) -> int | None:
        """Token of 0 seconds."""
        return None if self.no_timestamps is None else self.no_timestamps + 1

    def prompt(self, language: int | None, task: str, *, timestamps: bool) -> list[int]:
        """The tokens before a transcript.

        Args:
            language: Token of the language; None where the model knows one alone.
            task: A name of `tasks`, or ``transcribe``.
            timestamps: Whether times are wanted.

        Raises:
            RequestError: The model knows no such task, or no times.
        """
        if task not in self.tasks and (self.tasks or task != TRANSCRIBE):
            known = ", ".join(self.tasks) or TRANSCRIBE
            raise RequestError(f"the model knows no task {task!r}", where="task", hint=known)
        if timestamps and self.no_timestamps is None:
            raise RequestError("the model knows no times", where="timestamps", hint="leave it out")
        found = [self.start]
        if language is not None:
            found.append(language)
        if self.tasks:
            found.append(self.tasks[task])
        if self.no_timestamps is not None and not timestamps:
            found.append(self.no_timestamps)
        return found

    def language(self, code: str | None) -> int | None:
        """The token of a language; None where it is to be found out, or there is one alone.

        Raises:
            RequestError: The model does not know the language.
        """
        if code is None:
            return None
        if not self.languages:
            if code.lower() == "en":
                return None
            raise RequestError(
                "the model knows one language", where=f"language {code!r}", hint="leave it out"
            )
        if code.lower() not in self.languages:
            known = ", ".join(sorted(self.languages))
            raise RequestError(
                "the model does not know it", where=f"language {code!r}", hint=f"one of {known}"
            )
        return self.languages[code.lower()]
