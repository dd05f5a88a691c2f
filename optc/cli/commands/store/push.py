"""``optc push``: an artifact goes to an OCI layout or a registry."""

from __future__ import annotations

from pathlib import Path

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.output import byte_text, json_option, print_json
from optc.cli.progress import progress_on_stderr


@click.command("push", short_help="Copy an artifact to an OCI layout or a registry.")
@click.argument("artifact", type=ARTIFACT)
@click.argument("reference")
@click.option("--plain-http", is_flag=True, help="Use HTTP; the registry has no TLS.")
@json_option
def command(artifact: Path, reference: str, plain_http: bool, as_json: bool) -> None:
    """Push ARTIFACT to REFERENCE, oci:FOLDER[:TAG] or HOST[:PORT]/REPOSITORY[:TAG].

    All files are checked first, signature and report go too, and blobs that are there already are
    not sent again. oras and other tools of OCI artifacts read what is pushed.
    """
    from optc.artifact.artifact import Artifact
    from optc.artifact.store.oci.reference import parse_reference
    from optc.artifact.store.oci.transfer import open_place, push

    place = open_place(parse_reference(reference, "REFERENCE"), plain_http=plain_http)
    opened = Artifact.open(artifact)
    with progress_on_stderr() as progress:
        done = push(opened, place, progress)
    if as_json:
        values = {"artifact": str(artifact), "digest": opened.digest, "reference": reference}
        figures = {"files": done.files, "bytes": done.bytes, "moved_bytes": done.moved}
        print_json("push", {**values, "oci_digest": done.oci_digest, **figures})
        return
    click.echo(
        f"{reference}: {done.files} files, {byte_text(done.bytes)}, of which "
        f"{byte_text(done.moved)} were not there yet"
    )
    click.echo(f"OCI digest {done.oci_digest}")
