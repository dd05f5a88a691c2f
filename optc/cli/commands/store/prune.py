"""``optc prune``: an OCI layout loses what no tag needs."""

from __future__ import annotations

from dataclasses import asdict

import click

from optc.cli.output import byte_text, json_option, print_json

#: Hours.
_LEAST_AGE = 24.0


@click.command("prune", short_help="Remove what no tag of a layout needs.")
@click.argument("reference")
@click.option(
    "--min-age",
    type=click.FloatRange(min=0),
    default=_LEAST_AGE,
    show_default=True,
    metavar="HOURS",
    help="Keep what was written or looked for later: a push may be about to name it.",
)
@click.option("--dry-run", is_flag=True, help="Remove nothing; list what would be removed.")
@json_option
def command(reference: str, min_age: float, dry_run: bool, as_json: bool) -> None:
    """Remove the blobs of the layout REFERENCE, oci:FOLDER, that none of its tags leads to.
    Registries collect theirs by themselves.
    """
    from optc.artifact.store.oci.layout import Layout
    from optc.artifact.store.oci.prune import prune
    from optc.artifact.store.oci.reference import parse_reference
    from optc.errors import InputError

    place = parse_reference(reference, "REFERENCE")
    if place.folder is None:
        hint = "oci:FOLDER; registries collect their garbage by themselves"
        raise InputError("is no layout", where=reference, hint=hint)
    done = prune(Layout(place, place.folder), min_age * 3600, dry=dry_run)
    if as_json:
        print_json("prune", {"layout": str(place.folder), "dry_run": dry_run, **asdict(done)})
        return
    verb = "would remove" if dry_run else "removed"
    click.echo(f"{place.folder}: {verb} {done.blobs} blobs of {byte_text(done.bytes)}")
