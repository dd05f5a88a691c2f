"""``optc pull``: an artifact comes from an OCI layout or a registry."""

from __future__ import annotations

from pathlib import Path

import click

from optc.cli.options import PATH
from optc.cli.output import byte_text, json_option, print_json
from optc.cli.progress import progress_on_stderr


@click.command("pull", short_help="Fetch an artifact from an OCI layout or a registry.")
@click.argument("reference")
@click.option(
    "-o", "--output", type=PATH, metavar="DIR", help="Folder to write [its name in the store]."
)
@click.option("--name", metavar="NAME", help="Name in the store [REPOSITORY, or REPOSITORY-TAG].")
@click.option("--force", is_flag=True, help="Overwrite an artifact that exists.")
@click.option("--plain-http", is_flag=True, help="Use HTTP; the registry has no TLS.")
@json_option
def command(
    reference: str,
    output: Path | None,
    name: str | None,
    force: bool,
    plain_http: bool,
    as_json: bool,
) -> None:
    """Pull what REFERENCE names, oci:FOLDER[:TAG] or HOST[:PORT]/REPOSITORY[:TAG|@sha256:…], into
    the local store or another folder.

    Every byte is checked before the artifact is in its place. Who made it is another question: see
    optc verify --key.
    """
    from optc.artifact.store.local import check_name, store_root
    from optc.artifact.store.oci.reference import parse_reference
    from optc.artifact.store.oci.transfer import open_place, pull
    from optc.errors import InputError

    if output is not None and name is not None:
        raise InputError("give either --output or --name", where="optc pull")
    source = parse_reference(reference, "REFERENCE")
    target = output or store_root() / check_name(name or source.name, "--name")
    place = open_place(source, plain_http=plain_http)
    with progress_on_stderr() as progress:
        done = pull(place, target, reference, force=force, progress=progress)
    if as_json:
        values = {"artifact": str(target), "digest": done.artifact.digest, "reference": reference}
        figures = {"files": done.files, "bytes": done.bytes}
        print_json("pull", {**values, "oci_digest": done.oci_digest, **figures})
        return
    click.echo(f"{target}: {done.files} files, {byte_text(done.bytes)}")
    click.echo(f"digest {done.artifact.digest}")
