"""``optc run --input FILE --output FILE`` from its options to its figures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from optc.artifact.artifact import Artifact
from optc.cli.batch.answers_file import AnswersFile
from optc.cli.batch.batch_line import LineReader
from optc.cli.batch.run_batch import BatchFigures, InputFile, LinesError, run_batch
from optc.cli.chosen import chosen_json
from optc.cli.generating.prompts import unread_variables
from optc.cli.generating.sampling import adapter_terms
from optc.cli.logs import note
from optc.cli.output import print_json, print_warnings, visible
from optc.cli.progress import progress_on_stderr
from optc.errors import EngineError


@dataclass(frozen=True)
class BatchFiles:
    """Files of a run.

    Attributes:
        artifact: Its folder.
        source: A request a line.
        output: An answer a line.
        adapter: Folder of an adapter; None is the model itself.
    """

    artifact: Path
    source: Path
    output: Path
    adapter: Path | None


def answer_file(
    files: BatchFiles, reader: LineReader, terms: dict[str, Any], as_json: bool
) -> None:
    """Answer the lines that have no answer yet, and print the figures.

    Raises:
        LinesError: Some lines have an error instead of an answer.
        InputError: A file cannot be read or written, or holds other answers.
        EngineError: The engine failed; the same command goes on from there.
    """
    from optc.runtime.loader import load

    source = InputFile.of(files.source)
    begun = _begun(files, source, reader, terms)
    with (
        AnswersFile(files.output, begun) as answers,
        _goes_on(answers, source),
        load(files.artifact, reader.settings) as engine,
    ):
        print_warnings(unread_variables(engine, reader.prompts.chat_template_kwargs))
        terms = terms | adapter_terms(engine, files.adapter)
        with progress_on_stderr() as progress:
            figures = run_batch(engine, source, reader, answers, terms, progress)
    values = {
        "output": str(files.output),
        "lines": source.lines,
        "resumed": answers.resumed,
        **asdict(figures),
        "engine": chosen_json(engine.info)["engine"],
    }
    if figures.errors:
        raise LinesError(
            f"{figures.errors} of {source.lines} lines have an error instead of an answer",
            values,
            where=str(files.output),
            hint="the other answers are there; each of these lines has its 'error'",
        )
    if as_json:
        print_json("run", values)
    else:
        note(visible(_summary(files, source, answers, figures)))


@contextmanager
def _goes_on(answers: AnswersFile, source: InputFile) -> Iterator[None]:
    """Say how a run goes on that is interrupted, terminated, or whose engine fails."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, EngineError):
        there = f"{answers.lines} of {source.lines} answers are in {answers.path}"
        note(visible(f"{there}; the same command goes on behind them"))
        raise


def _begun(
    files: BatchFiles, source: InputFile, reader: LineReader, terms: dict[str, Any]
) -> dict[str, Any]:
    """The artifact, input and options that the answers depend on."""
    options = {
        "params": asdict(reader.params),
        "chat": reader.prompts.chat,
        "system": reader.prompts.system,
        "chat_template_kwargs": dict(reader.prompts.chat_template_kwargs),
        "adapter": None if files.adapter is None else str(files.adapter),
        "engine": reader.settings.engine,
        "generation_defaults": reader.settings.generation_defaults,
        **terms,
    }
    return {
        "artifact": Artifact.open(files.artifact, "size").digest,
        "input": source.sha256,
        "options": options,
    }


def _summary(
    files: BatchFiles, source: InputFile, answers: AnswersFile, figures: BatchFigures
) -> str:
    text = f"{source.lines} answers in {files.output}"
    if answers.resumed:
        text += f", {answers.resumed} of them from before"
    rate = figures.output_tokens / max(figures.seconds, 1e-9)
    return (
        f"{text}: {figures.prompt_tokens} prompt tokens, {figures.output_tokens} new ones in "
        f"{figures.seconds:.1f} s ({rate:.0f} tokens/s)"
    )
