"""``optc compile``: a model folder becomes a proven artifact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from optc.cli.bisect_tables import bisect_tables
from optc.cli.draft_line import draft_figures, draft_line
from optc.cli.judged.checks import gate_checks, gate_figures
from optc.cli.judged.decisions import decision_tables
from optc.cli.judged.ladder_tables import ladder_tables
from optc.cli.judged.options import SummaryFiles, summary_options
from optc.cli.options import ANY_MODEL, add_options
from optc.cli.output import (
    byte_text,
    command_seconds,
    json_option,
    print_json,
    print_warnings,
    reserved_stdout,
    show,
)
from optc.cli.progress import progress_on_stderr
from optc.cli.tables import engines_table, gates_tables, passes_table
from optc.errors import GateError
from optc.proof.conditions.decisions import decisions_of
from optc.proof.conditions.summary import Summary
from optc.system.options import CompileOptions
from optc.system.sources.dim import parse_dim

if TYPE_CHECKING:
    from optc.artifact.artifact import Artifact


@click.command("compile", short_help="Compile a model folder into an artifact.")
@click.argument("model", type=ANY_MODEL)
@add_options(CompileOptions)
@click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=LEAST..MOST",
    help="Sizes of a dimension of a model of named tensors; repeated.",
)
@click.option(
    "--inputs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="Inputs to judge such a model by (.npz, of classifiers images) [its example, or random "
    "ones], or a model of speech: sounds (.wav) [sentences that ship], or a pipeline of diffusers, "
    "or an encoder-decoder of text: files of texts, one a line [some that ship]; repeated.",
)
@click.option(
    "--images",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="How images become such a model's input (JSON, YAML): it is a classifier.",
)
@summary_options
@json_option
def command(as_json: bool, **options: Any) -> None:
    """Compile MODEL and prove the result against it.

    MODEL is a Hugging Face folder or name or a GGUF file of a decoder; or a model of named tensors:
    a file .onnx or .pt2, the folder of an encoder, or package.module:factory; or the folder of a
    model of speech, such as Whisper, of an encoder-decoder of text, such as T5, or of a pipeline of
    diffusers.

    Writes an artifact only if every gate of the recipe holds; exit code 4 if one does not. With
    --recipe auto, finds the fastest or smallest of all recipes that hold what --gate asks for.
    """
    files = SummaryFiles(options.pop("markdown"), options.pop("junit"))
    files.check()
    title = f"optc compile {options['model']}"
    if click.get_current_context().get_parameter_source("recipe") is ParameterSource.DEFAULT:
        options["recipe"] = None  # the default depends on the model
    try:
        artifact = _compile(**options)
    except GateError as error:
        details = getattr(error, "details", {})
        files.write(_summary(title, details, strict=not options["allow_unmeasured"]))
        if not as_json:
            print_warnings(details.get("warnings", []))
            show(*gates_tables(details.get("gates", [])))
            show(*decision_tables(details.get("decisions", {})))
            show(*bisect_tables(details.get("bisect")))
            show(*ladder_tables(details.get("ladder")))
        raise
    report = artifact.report()
    files.write(_summary(f"{title}: {artifact.path}", report, strict=False))
    decisions = decisions_of(report.get("evaluation", {}))
    values = {"artifact": str(artifact.path), "digest": artifact.digest, "decisions": decisions}
    keys = (
        *("passes", "gates", "engines", "storage", "peak_anon_bytes", "seconds"),
        *("bisect", "ladder"),
    )
    if as_json:
        figures = {key: report[key] for key in keys if key in report} | draft_figures(report)
        for engine in figures["engines"]:
            del engine["build"]  # kernel and layer tables: report.json has them
        print_json("compile", {**values, **figures}, report["warnings"])
        return
    print_warnings(report["warnings"])
    storage = report["storage"]
    show(passes_table(report["passes"]), *gates_tables(report["gates"]))
    show(*decision_tables(decisions), *bisect_tables(report.get("bisect")))
    show(*ladder_tables(report.get("ladder")))
    if len(report["engines"]) > 1:
        show(engines_table(report["engines"]))
        click.echo(f"duplicated across engines: {byte_text(storage['duplicated_bytes'])}")
    if line := draft_line(report):
        click.echo(line)
    click.echo(
        f"{artifact.path}: {byte_text(storage['bytes'])} in {command_seconds():.1f} s, "
        f"peak memory {byte_text(report['peak_anon_bytes'])}"
    )
    click.echo(f"digest {artifact.digest}")


def _summary(title: str, report: Mapping[str, Any], *, strict: bool) -> Summary:
    """The summary of the gates; ``strict`` if one without a verdict forbids the artifact."""
    gates = report.get("gates", [])
    checks = gate_checks(gates, strict=strict)
    return Summary(title, checks, gate_figures(gates), report.get("warnings", []))


def _compile(**options: Any) -> Artifact:
    from optc.system.needs import compile_packages

    with compile_packages(), reserved_stdout(), progress_on_stderr() as progress:
        from optc.compiling.compile import compile as compile_model

        dims = [parse_dim(text) for text in options.pop("dims")]
        return compile_model(options.pop("model"), dims=dims, progress=progress, **options)
