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
from optc.judging.decisions import decisions_of
from optc.options import CompileOptions
from optc.runtime.settings import ServeSettings
from optc.system.needs import compile_packages

if TYPE_CHECKING:
    from rich.table import Table

    from optc.driver.judging.evaluate import Evaluation
    from optc.progress import Progress

_PATH = click.Path(path_type=Path)
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
@click.option("--text", type=_PATH, help="Text to score: .jsonl or plain [shipped].")
@click.option("--reference", type=_PATH, help="Model folder: adds KL and top-1 agreement.")
@add_options(ServeSettings, "engine", "threads")
@add_options(CompileOptions, "allow_remote_code")
@json_option
def command(
    artifact: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Score a text with ARTIFACT; with --reference also against the float32 model."""
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


def _add(rows: Table, figures: Mapping[str, Any]) -> None:
    for key, label in _LABELS.items():
        value = figures.get(key)
        if value is not None:
            rows.add_row(label, figure(value, 6) if isinstance(value, float) else str(value))


def _evaluate(path: Path, progress: Progress, options: dict[str, Any]) -> Evaluation:
    from optc.artifact import Artifact
    from optc.driver.judging.evaluate import evaluate_artifact

    progress("check", 0, 0)
    return evaluate_artifact(Artifact.open(path), progress=progress, **options)
