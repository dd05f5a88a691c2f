"""Answers every line of a file, in batches that the engine makes."""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.cli.batch.answers_file import AnswersFile
from optc.cli.batch.asked import Asked
from optc.cli.batch.batch_line import BatchLine, LineReader
from optc.errors import InputError, OptcError, RequestError
from optc.system.progress import Progress

if TYPE_CHECKING:
    from optc import Engine, RequestOutput
    from optc.runtime.handle import Handle
    from optc.runtime.text.tokenizer import Tokenizer

#: The requests of a line, one a prompt, or what is wrong with it.
Submitted = list["Handle"] | OptcError
#: Requests that are submitted ahead, in sequences that the engine serves at once: enough that it
#: is never short of work while the first answer, which is written first, takes long.
_AHEAD = 4


@dataclass(frozen=True)
class InputFile:
    """A file of requests, a line each; empty lines are nothing.

    Attributes:
        path: The file.
        lines: How many there are.
        sha256: Of its bytes.
    """

    path: Path
    lines: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> InputFile:
        """Read a file once.

        Raises:
            InputError: It cannot be read, or has no lines.
        """
        digest, lines = hashlib.sha256(), 0
        try:
            with path.open("rb") as stream:
                for line in stream:
                    digest.update(line)
                    lines += bool(line.strip())
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"cannot read {path}: {reason}", where="--input") from error
        if not lines:
            raise InputError(f"{path} has no lines", where="--input")
        return cls(path, lines, digest.hexdigest())

    def read(self, skip: int) -> Iterator[tuple[int, bytes]]:
        """Lines with their numbers from 1, without the first ``skip``."""
        with self.path.open("rb") as stream:
            filled = ((n, line) for n, line in enumerate(stream, 1) if line.strip())
            for index, (number, line) in enumerate(filled):
                if index >= skip:
                    yield number, line


@dataclass
class BatchFigures:
    """The figures of a run.

    Attributes:
        errors: Lines that have an error instead of an answer, of earlier runs too.
        prompt_tokens: Of this run's answers.
        output_tokens: The same.
        seconds: From its beginning to its end.
    """

    errors: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0

    def add(self, output: RequestOutput) -> None:
        """Count an answer."""
        self.prompt_tokens += output.prompt_tokens
        self.output_tokens += output.output_tokens


class LinesError(InputError):
    """Some lines of the input have no answer; ``details`` are the figures."""

    def __init__(self, message: str, details: dict[str, Any], **more: str) -> None:
        super().__init__(message, **more)
        self.details = details


def run_batch(
    engine: Engine,
    source: InputFile,
    reader: LineReader,
    answers: AnswersFile,
    terms: dict[str, Any],
    progress: Progress,
) -> BatchFigures:
    """Write an answer, or what is wrong, for each line that has none.

    Args:
        engine: Answers.
        source: The lines.
        reader: Understands them.
        answers: Where they go, in the order of the lines.
        terms: How requests are served.
        progress: Told of each answer.

    Raises:
        EngineError: The engine failed; the answers so far are written.
    """
    started, figures = time.perf_counter(), BatchFigures(answers.failed)
    waiting: deque[tuple[BatchLine, Submitted]] = deque()
    ahead = _AHEAD * engine.spec.max_sequences
    done, total = 0, source.lines - answers.resumed
    progress("answers", done, total)

    def write() -> None:
        nonlocal done
        line, submitted = waiting.popleft()
        answers.append(_answer(line, submitted, figures, engine.tokenizer))
        done += 1
        progress("answers", done, total)

    try:
        for number, text in source.read(answers.resumed):
            line = reader.read(number, text)
            waiting.append((line, _submit(engine, line, terms)))
            while waiting and (_requests(waiting) > ahead or _ended(waiting[0][1])):
                write()
        while waiting:
            write()
    finally:  # an interrupt must not leave requests running
        for _, submitted in waiting:
            _cancel(submitted)
    answers.finish()
    figures.seconds = time.perf_counter() - started
    return figures


def _submit(engine: Engine, line: BatchLine, terms: dict[str, Any]) -> Submitted:
    if line.error is not None:
        return line.error
    handles: list[Handle] = []
    try:
        handles.extend(engine.submit(prompt, line.params, **terms) for prompt in line.prompts)
    except RequestError as error:
        _cancel(handles)
        return error
    return handles


def _requests(waiting: Iterable[tuple[BatchLine, Submitted]]) -> int:
    """Number of requests that wait for their end, or to be written."""
    return sum(1 if isinstance(s, OptcError) else len(s) for _, s in waiting)


def _ended(submitted: Submitted) -> bool:
    return isinstance(submitted, OptcError) or all(handle.done for handle in submitted)


def _cancel(submitted: Submitted) -> None:
    if not isinstance(submitted, OptcError):
        for handle in submitted:
            handle.cancel()


def _answer(
    line: BatchLine, submitted: Submitted, figures: BatchFigures, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    if isinstance(submitted, OptcError):
        figures.errors += 1
        return line.form.failure(submitted)
    outputs = [handle.result() for handle in submitted]
    failed = next((output.error for output in outputs if output.error is not None), None)
    if failed is not None:
        figures.errors += 1
        return line.form.failure(failed)
    for output in outputs:
        figures.add(output)
    return line.form.answer(Asked(line.prompts, line.params, tokenizer), outputs)
