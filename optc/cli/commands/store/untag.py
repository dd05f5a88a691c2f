"""``optc untag``: a tag of an OCI layout or a registry goes."""

from __future__ import annotations

import click

from optc.cli.output import json_option, print_json


@click.command("untag", short_help="Remove a tag of a layout or registry.")
@click.argument("reference")
@click.option("--plain-http", is_flag=True, help="Use HTTP; the registry has no TLS.")
@json_option
def command(reference: str, plain_http: bool, as_json: bool) -> None:
    """Remove the tag of REFERENCE, oci:FOLDER:TAG or HOST[:PORT]/REPOSITORY:TAG. What it named
    stays in a layout until optc prune; a registry has its own ways, and may keep tags.
    """
    from optc.artifact.store.oci.reference import parse_reference
    from optc.artifact.store.oci.transfer import open_place

    place = parse_reference(reference, "REFERENCE")
    open_place(place, plain_http=plain_http).untag()
    if as_json:
        print_json("untag", {"reference": reference, "tag": place.version})
        return
    click.echo(f"{reference}: {place.version} names nothing any more")
