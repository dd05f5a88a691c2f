"""``optc export``: an artifact's weights as a checkpoint that other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.output import byte_text, json_option, print_json, print_warnings

if TYPE_CHECKING:
    from optc.compiling.export.export import Format
    from optc.compiling.export.written import Written

_FORMATS = ("gguf", "compressed-tensors", "hf")


@click.command("export", short_help="Write an artifact as a checkpoint that other tools read.")
@click.argument("artifact", type=ARTIFACT)
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), required=True, help="Format of the checkpoint."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="A file NAME.gguf, or a folder for other formats; by default the artifact's name.",
)
@click.option(
    "--tokenizer-from",
    type=click.Path(path_type=Path),
    metavar="FILE.gguf",
    help="For gguf: a file of the same model, whose tokenizer is taken over.",
)
@click.option("--engine", metavar="NAME", help="The engine whose weights are written.")
@json_option
def command(
    artifact: Path,
    form: Format,
    output: Path | None,
    tokenizer_from: Path | None,
    engine: str | None,
    as_json: bool,
) -> None:
    """Write the weights of ARTIFACT, with config and tokenizer.

    gguf and compressed-tensors keep integers as they are; hf is a plain folder for transformers, in
    floats. What has no equivalent in the format is refused by name, and what is rounded, as scales
    to float16, is told with the error that was measured.
    """
    from optc.artifact.artifact import Artifact
    from optc.compiling.export.export import check_export
    from optc.system.needs import compile_packages

    opened = Artifact.open(artifact, verify="size")
    place = output or _default(opened.path, form)
    check_export(opened, form, place, engine, tokenizer_from)
    opened = Artifact.open(artifact)  # every file is read: after all that can be refused at once
    with compile_packages():
        from optc.compiling.export.export import export_artifact

        written = export_artifact(opened, form, place, engine, tokenizer_from)
    size = sum(f.stat().st_size for f in ([place] if place.is_file() else place.iterdir()))
    warnings = _warnings(written)
    if as_json:
        values = {"artifact": str(artifact), "digest": opened.digest, "format": form}
        figures = {"bytes": size, "tensors": written.types, "relative_errors": written.losses}
        print_json("export", {**values, "output": str(place), **figures}, warnings)
        return
    print_warnings(warnings)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(written.types.items()))
    click.echo(f"{place}: {byte_text(size)}, {sum(written.types.values())} tensors: {kinds}")


def _default(artifact: Path, form: str) -> Path:
    name = artifact.resolve().name
    return Path(f"{name}.gguf" if form == "gguf" else f"{name}-{form}")


def _warnings(written: Written) -> list[str]:
    return [
        f"{written.types[kind]} tensors in {kind} have the engine's integers, and scales rounded "
        f"to float16: the root mean square of the error is {loss:.2e} of the weights'"
        if kind != "F16"
        else f"{written.types[kind]} tensors have a grid that the format has not, and are float16: "
        f"the root mean square of the error is {loss:.2e} of the weights'"
        for kind, loss in sorted(written.losses.items())
    ]
