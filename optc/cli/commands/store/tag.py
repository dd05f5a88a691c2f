"""``optc tag``: another tag for what is in an OCI layout or a registry."""

from __future__ import annotations

import click

from optc.cli.output import json_option, print_json


@click.command("tag", short_help="Give what lies in a layout or registry another tag.")
@click.argument("reference")
@click.argument("tag")
@click.option("--plain-http", is_flag=True, help="Use HTTP; the registry has no TLS.")
@json_option
def command(reference: str, tag: str, plain_http: bool, as_json: bool) -> None:
    """Let TAG name what REFERENCE names, in the same layout or repository: a promotion, such as
    optc tag oci:shared:candidate production. Nothing is copied; what TAG named before is named by
    its digest alone.
    """
    from optc.artifact.store.oci.manifest import digest_of, read_manifest_files
    from optc.artifact.store.oci.reference import parse_reference
    from optc.artifact.store.oci.transfer import open_place

    source = parse_reference(reference, "REFERENCE")
    target = source.tagged(tag, "TAG")
    manifest = open_place(source, plain_http=plain_http).manifest()
    read_manifest_files(manifest, reference)  # of other tools it would be called another type
    open_place(target, plain_http=plain_http).put_manifest(manifest)
    digest = digest_of(manifest)
    if as_json:
        print_json("tag", {"reference": target.text, "oci_digest": digest})
        return
    click.echo(f"{target.text}: {digest}")
