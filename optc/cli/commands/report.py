"""``optc report``: one HTML file about an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.files.output_file import check_output, write_output
from optc.cli.output import json_option, print_json, print_warnings, reserved_stdout
from optc.cli.progress import progress_on_stderr
from optc.errors import ArtifactError, InputError, OptcError

if TYPE_CHECKING:
    from optc.artifact.artifact import Artifact
    from optc.artifact.pages.measured import Measured

#: Rounds of the profile: fewer than of ``optc bench --profile``, for a first look.
_ROUNDS = 7
_PROMPT, _CONCURRENCY = 512, (1, 8, 16)


@click.command("report", short_help="Write a page about an artifact.")
@click.argument("artifact", type=ARTIFACT)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="The HTML file; one that is there is replaced.",
)
@click.option(
    "--bench",
    type=click.Path(path_type=Path),
    help="What optc bench --profile --json printed, instead of measuring.",
)
@click.option("--no-measure", is_flag=True, help="Leave out what is measured on this machine.")
@click.option("--engine", metavar="NAME", help="The engine to measure.")
@json_option
def command(
    artifact: Path,
    output: Path,
    bench: Path | None,
    no_measure: bool,
    engine: str | None,
    as_json: bool,
) -> None:
    """Write one HTML file about ARTIFACT: gates and the distribution of KL, the worst contexts,
    SQNR by layer, roofline, the time of a step, sizes, passes, versions and digests.

    The file needs no other one. A profile of an engine is measured for it, if one runs here.
    """
    from optc.artifact.artifact import Artifact
    from optc.artifact.pages.artifact_page import artifact_page
    from optc.artifact.pages.sections.subject import Subject

    check_output(output, (".html", ".htm"), "--output")
    _check_sources(bench, no_measure, engine)
    opened = Artifact.open(artifact, verify="size" if no_measure or bench else "full")
    warnings: list[str] = []
    report = _report(opened, warnings)
    measured, reason = _measured(opened, bench, no_measure, engine, warnings)
    page = artifact_page(Subject(opened.manifest, report, measured, reason))
    warnings += page.damaged
    size = write_output(output, page.text)
    if as_json:
        values = {"artifact": str(artifact), "digest": opened.digest, "output": str(output)}
        print_json("report", {**values, "bytes": size, "sections": list(page.sections)}, warnings)
        return
    print_warnings(warnings)
    click.echo(str(output))


def _check_sources(bench: Path | None, no_measure: bool, engine: str | None) -> None:
    """Refuse options that would change nothing."""
    if bench is not None and no_measure:
        raise InputError("changes nothing with --bench", where="--no-measure", hint="leave it out")
    if engine is not None and (no_measure or bench is not None):
        raise InputError("nothing is measured", where="--engine", hint="leave it out")


def _report(artifact: Artifact, warnings: list[str]) -> dict[str, object]:
    """The report; where it is damaged, a warning, and what stands in the manifest is shown."""
    try:
        return artifact.report()
    except ArtifactError as error:
        warnings.append(f"the report is left out: {error.render()}")
        return {}


def _measured(
    artifact: Artifact,
    bench: Path | None,
    no_measure: bool,
    engine: str | None,
    warnings: list[str],
) -> tuple[Measured | None, str]:
    """The measurements of the engine, or the reason why there are none."""
    if bench is not None:
        return _from_file(bench), ""
    if no_measure:
        return None, "Not measured: --no-measure left it out."
    try:
        return _profile(artifact, engine, warnings), ""
    except InputError:  # there is no such engine
        raise
    except OptcError as error:
        warnings.append(f"no profile: {error.render()}")
        return None, f"Not measured: {error.render()}"


def _from_file(path: Path) -> Measured:
    from optc.artifact.pages.measured import read_measured
    from optc.system.safe_json import JSONError, parse_json

    hint = "give what optc bench --profile --json printed"
    try:
        return read_measured(parse_json(path.read_bytes()), str(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except JSONError as error:
        raise InputError(f"is not JSON: {error}", where=str(path), hint=hint) from error
    except ArtifactError as error:
        raise InputError(error.message, where=error.where, hint=hint) from error


def _profile(artifact: Artifact, engine: str | None, warnings: list[str]) -> Measured:
    """Profile the engine that suits this machine best, or the one of that name.

    Raises:
        UnavailableError: It cannot be loaded or measured here.
    """
    from optc.artifact.pages.measured import read_measured
    from optc.proof.bench.profiled import open_profile
    from optc.proof.roofline.ceilings import ceilings_json, disturbances

    with (
        reserved_stdout(),
        progress_on_stderr() as progress,
        open_profile(artifact, engine) as opened,
    ):
        steps = opened.measure(opened.shapes(_PROMPT, _CONCURRENCY), _ROUNDS, progress)
        meter = opened.instruments.meter
        warnings += disturbances(meter)
        values = {"ceilings": ceilings_json(meter), "profile": steps}
    entry = opened.choice.entry
    chosen = {"engine": {"name": entry.name}, "target": entry.target.name}
    return read_measured({**chosen, **values}, str(artifact.path))
