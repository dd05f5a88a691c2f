"""``optc compile``: a model folder becomes a proven artifact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.cli.output import (
    byte_text,
    json_option,
    print_json,
    print_warnings,
    reserved_stdout,
    show,
)
from optc.cli.progress import progress_on_stderr
from optc.cli.tables import engines_table, gates_tables, passes_table
from optc.errors import GateError
from optc.units import SIZE_HELP

if TYPE_CHECKING:
    from optc.artifact import Artifact

_PATH = click.Path(path_type=Path)


def _layers(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | str | None:
    """A number of layers, or ``auto``."""
    if value is None or value == "auto":
        return value
    if not value.isdecimal() or int(value) < 1:
        raise click.BadParameter(f"{value!r} is neither a number of layers nor auto")
    return int(value)


@click.command("compile", short_help="Compile a model folder into an artifact.")
@click.argument("model", type=_PATH)
@click.option("--recipe", default="int8-fused", show_default=True, help="Recipe's name or file.")
@click.option("-o", "--output", type=_PATH, help="Folder to write [artifacts/MODEL-RECIPE].")
@click.option(
    "--backend",
    multiple=True,
    metavar="BACKEND[:TARGET]",
    help="Instead of the recipe's; repeated for several engines in one artifact.",
)
@click.option("--target", help="Where --backend names none; see 'optc targets' [native].")
@click.option("--set", "sets", multiple=True, metavar="PASS.OPTION=VALUE", help="Pass option.")
@click.option("--gate", "gates", multiple=True, metavar="NAME=BOUND", help="Gate's bound, or none.")
@click.option("--calibration", type=_PATH, help="Text for passes that calibrate.")
@click.option("--eval-text", type=_PATH, help="Text for the gates: .jsonl or plain [shipped].")
@click.option("--max-context", type=click.IntRange(min=1), help="Longest sequence [the model's].")
@click.option("--max-ram", metavar="SIZE", help=f"Refuse to take more memory, {SIZE_HELP}.")
@click.option("--draft", type=_PATH, help="Folder of a smaller model that drafts tokens for it.")
@click.option("--medusa", type=_PATH, help="Folder of Medusa heads that draft tokens for it.")
@click.option("--adapters", metavar="max=8,rank=16", help="Room for LoRA adapters at run time.")
@click.option(
    "--self-draft",
    callback=_layers,
    metavar="LAYERS|auto",
    help="Also build its first LAYERS as a draft of itself; auto measures how many pay.",
)
@click.option("--tune", is_flag=True, help="Measure kernel schedules here, a minute an engine.")
@click.option("--schedules", type=_PATH, help="File of kernel schedules [--tune: user's cache].")
@click.option("--no-gates", is_flag=True, help="Measure nothing; the artifact says so.")
@click.option("--allow-unmeasured", is_flag=True, help="Accept gates that cannot be measured here.")
@click.option("--keep-failed", is_flag=True, help="Keep a gated-out result as OUTPUT.failed.")
@click.option("--allow-remote-code", is_flag=True, help="Run Python code from the model folder.")
@click.option("--dump-dir", type=_PATH, help="Write the graph after every pass here.")
@click.option("--force", is_flag=True, help="Replace an artifact that is there.")
@json_option
def command(as_json: bool, sets: tuple[str, ...], gates: tuple[str, ...], **options: Any) -> None:
    """Compile MODEL, a Hugging Face folder, and prove the result against it.

    Writes an artifact only if every gate of the recipe holds; exit code 4 if one does not.
    """
    try:
        artifact = _compile(set=sets, gate=gates, **options)
    except GateError as error:
        if not as_json:
            show(*gates_tables(getattr(error, "details", {}).get("gates", [])))
        raise
    report = artifact.report()
    values = {"artifact": str(artifact.path), "digest": artifact.digest}
    keys = ("passes", "gates", "engines", "storage", "peak_anon_bytes", "seconds")
    if as_json:
        figures = {key: report[key] for key in keys}
        for engine in figures["engines"]:
            del engine["build"]  # kernel and layer tables: report.json has them
        print_json("compile", {**values, **figures}, report["warnings"])
        return
    print_warnings(report["warnings"])
    storage = report["storage"]
    show(passes_table(report["passes"]), *gates_tables(report["gates"]))
    if len(report["engines"]) > 1:
        show(engines_table(report["engines"]))
        click.echo(f"duplicated across engines: {byte_text(storage['duplicated_bytes'])}")
    click.echo(
        f"{artifact.path}: {byte_text(storage['bytes'])} in {report['seconds']:.1f} s, "
        f"peak memory {byte_text(report['peak_anon_bytes'])}"
    )
    click.echo(f"digest {artifact.digest}")


def _compile(**options: Any) -> Artifact:
    from optc.cli.needs import compile_packages

    with compile_packages(), reserved_stdout(), progress_on_stderr() as progress:
        from optc.driver import compile as compile_model

        return compile_model(options.pop("model"), progress=progress, **options)
