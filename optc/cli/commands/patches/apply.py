"""``optc apply``: an artifact from another one and a patch."""

from __future__ import annotations

from pathlib import Path

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.options import PATH
from optc.cli.output import json_option, print_json


@click.command("apply", short_help="Make an artifact of another one and a patch.")
@click.argument("patch", type=PATH)
@click.argument("old", type=ARTIFACT)
@click.option(
    "-o",
    "--output",
    type=PATH,
    required=True,
    metavar="NEW",
    help="Folder to write, which must be new.",
)
@click.option("--force", is_flag=True, help="Overwrite an artifact that exists.")
@click.option("--key", type=PATH, metavar="FILE", help="Check first that this key signed PATCH.")
@json_option
def command(
    patch: Path, old: Path, output: Path, force: bool, key: Path | None, as_json: bool
) -> None:
    """Make of OLD the artifact NEW that PATCH was made for: the same bytes, its signature too.

    Everything is checked before NEW takes its place: PATCH by its digests, OLD by all of its own,
    and each byte of NEW by the manifest that PATCH names. Another OLD than that of 'optc patch' is
    refused, and so is a PATCH that brings another engine.
    """
    from optc.artifact.artifact import Artifact
    from optc.artifact.patches.apply import apply_patch
    from optc.artifact.patches.patch import open_patch

    opened = open_patch(patch)
    if key is not None:
        from optc.artifact.trust.keys import PublicKey
        from optc.artifact.trust.sign import check_signed

        check_signed(patch, lambda signed: opened.digests, PublicKey.read(key))
    made = apply_patch(opened, Artifact.open(old), output, force=force)
    if as_json:
        print_json("apply", {"artifact": str(output), "digest": made.digest})
        return
    click.echo(f"{output}: {len(made.manifest.files)} files, all as in the patched artifact")
    click.echo(f"digest {made.digest}")
