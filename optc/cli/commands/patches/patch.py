"""``optc patch``: the layer that turns one artifact into another of the same engine."""

from __future__ import annotations

from pathlib import Path

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.options import PATH
from optc.cli.output import byte_text, json_option, print_json


@click.command("patch", short_help="Write what one artifact has more than another.")
@click.argument("old", type=ARTIFACT)
@click.argument("new", type=ARTIFACT)
@click.option(
    "-o",
    "--output",
    type=PATH,
    required=True,
    metavar="PATCH",
    help="Folder to write, which must be new.",
)
@click.option("--no-gates", is_flag=True, help="Take a NEW that was compiled without gates.")
@json_option
def command(old: Path, new: Path, output: Path, no_gates: bool, as_json: bool) -> None:
    """Write into PATCH what differs in NEW, piece by piece, so that optc apply makes NEW of OLD.

    Both must be of one engine, byte for byte, but for its weights: such an artifact takes the place
    of the other in a running server. The same two give the same bytes. 'optc sign' and 'optc
    verify' take PATCH as they take an artifact.
    """
    from optc.artifact.artifact import Artifact
    from optc.artifact.patches.make import make_patch

    made = make_patch(Artifact.open(old), Artifact.open(new), output, gated=not no_gates)
    patch = made.patch
    whole, changed = sum(one.bytes for one in patch.files), patch.changes.bytes
    if as_json:
        digests = {"patch": str(output), "digest": patch.digest, "base": patch.base}
        sizes = {"bytes": changed, "of_bytes": whole}
        print_json("patch", {**digests, "result": patch.result, **sizes})
        return
    click.echo(f"{output}: {byte_text(changed)} of {byte_text(whole)} differ")
    click.echo(f"from {patch.base}\nto   {patch.result}")
