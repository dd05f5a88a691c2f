"""``optc eval``: perplexity of an artifact on a text, and its distance from a reference."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.judged.decisions import decision_tables
from optc.cli.options import add_options
from optc.cli.output import (
    figure,
    json_option,
    print_json,
    print_warnings,
    reserved_stdout,
    show,
    table,
)
from optc.cli.progress import progress_on_stderr
from optc.errors import InputError
from optc.proof.conditions.decisions import decisions_of
from optc.runtime.settings import ServeSettings
from optc.system.needs import compile_packages
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    from rich.table import Table

    from optc.compiling.judging.evaluate import Evaluation
    from optc.system.progress import Progress

_PATH = click.Path(path_type=Path)
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_COUNT, _NUMBER = click.IntRange(1), click.IntRange(0)
_OF_TASKS = ("tasks", "task_folder", "limit", "fewshot", "chat")
_LABELS = {
    "tokens": "predicted tokens",
    "perplexity": "perplexity",
    "reference_perplexity": "the reference's",
    "kl_mean": "mean KL (nats a token)",
    "kl_p99": "99th percentile of KL",
    "kl_max": "largest KL",
    "top1_agreement": "top-1 agreement",
    "top5_agreement": "top-5 agreement",
    "text": "text",
    "convention": "how",
}


@click.command("eval", short_help="Perplexity of an artifact, and its distance from a model.")
@click.argument("artifact", type=ARTIFACT)
@click.option(
    "--text", type=_PATH, help="Text to score, .jsonl or plain [a text that ships with optc]."
)
@click.option(
    "--reference",
    type=_PATH,
    help="Folder of the reference model; adds KL divergence and top-1 agreement.",
)
@click.option("--tasks", multiple=True, help="Tasks of lm-eval to run instead, comma-separated.")
@click.option("--task-folder", type=_FOLDER, help="Folder of further tasks [--tasks].")
@click.option("--limit", type=_COUNT, help="Maximum number of documents of a task [--tasks].")
@click.option("--fewshot", type=_NUMBER, help="Number of few-shot examples [--tasks].")
@click.option("--chat", is_flag=True, help="Render prompts with the chat template [--tasks].")
@add_options(ServeSettings, "engine", "threads")
@add_options(CompileOptions, "allow_remote_code")
@json_option
def command(
    artifact: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Score a text with ARTIFACT; with --reference also against the float32 model. With --tasks:
    its results in tasks of EleutherAI's Language Model Evaluation Harness, whose data is on this
    machine (docs/how-to/score-tasks.md)."""
    asked = {name: options.pop(name) for name in _OF_TASKS}
    if asked["tasks"]:
        _score_tasks(artifact, asked, options, as_json)
        return
    _refuse(asked, "only with --tasks")
    with compile_packages(), reserved_stdout(), progress_on_stderr() as progress:
        found = _evaluate(artifact, progress, options)
    if as_json:
        print_json("eval", found.figures, found.warnings)
        return
    print_warnings(found.warnings)
    rows = table(str(artifact), "", "")
    rows.show_header = False
    answers = found.figures.get("answers", {})
    if answers.get("text") != found.figures.get("text"):
        _add(rows, found.figures)
        rows.add_section()
    _add(rows, answers)
    show(rows, *decision_tables(decisions_of({str(artifact): found.figures})))


def _score_tasks(
    artifact: Path, asked: dict[str, Any], options: dict[str, Any], as_json: bool
) -> None:
    from optc.proof.lm_eval.tasks import WantedTasks, evaluate_tasks

    serve = {name: options.pop(name) for name in ("engine", "threads")}
    _refuse(options, "not with --tasks")
    names = tuple(name for one in asked["tasks"] for name in one.split(",") if name)
    if not names:
        raise InputError("no task is named", where="--tasks")
    wanted = WantedTasks(
        names, asked["task_folder"], asked["limit"], asked["fewshot"], asked["chat"]
    )
    with reserved_stdout():
        found = evaluate_tasks(artifact, wanted, **serve)
    if as_json:
        print_json("eval", {"tasks": found})
        return
    rows = table(str(artifact), "task", "metric", "value", "± standard error", "documents")
    for task, figures in found.items():
        for metric, one in figures["metrics"].items():
            spread, count = one["stderr"], figures["documents"]
            rows.add_row(
                task,
                metric,
                "" if one["value"] is None else figure(one["value"], 4),
                "" if spread is None else figure(spread, 4),
                "" if count is None else str(count),
            )
    show(rows)


def _refuse(options: Mapping[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None and value is not False and value != ():  # 0 is an answer
            raise InputError(f"this option goes {why}", where=f"--{name.replace('_', '-')}")


def _add(rows: Table, figures: Mapping[str, Any]) -> None:
    for key, label in _LABELS.items():
        value = figures.get(key)
        if value is not None:
            rows.add_row(label, figure(value, 6) if isinstance(value, float) else str(value))


def _evaluate(path: Path, progress: Progress, options: dict[str, Any]) -> Evaluation:
    from optc.artifact.artifact import Artifact
    from optc.compiling.judging.evaluate import evaluate_artifact

    progress("check", 0, 0)
    return evaluate_artifact(Artifact.open(path), progress=progress, **options)
