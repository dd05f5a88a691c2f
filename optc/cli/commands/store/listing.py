"""``optc list``: the artifacts of the local store, or the tags of a layout or registry."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from optc.cli.output import byte_text, json_option, print_json, show, table

if TYPE_CHECKING:
    from optc.artifact.store.local import Stored


@click.command("list", short_help="List the artifacts of the local store, or tags elsewhere.")
@click.argument("reference", required=False)
@click.option("--plain-http", is_flag=True, help="Use HTTP; the registry has no TLS.")
@json_option
def command(reference: str | None, plain_http: bool, as_json: bool) -> None:
    """List the artifacts in $OPTC_STORE, else in the folder artifacts: names that other commands
    take in the place of a path. Nothing is checked but that their manifests can be read.

    With REFERENCE, oci:FOLDER or HOST[:PORT]/REPOSITORY, list its tags.
    """
    if reference is not None:
        _list_tags(reference, plain_http, as_json)
        return
    from optc.artifact.store.local import VARIABLE, store_root, stored

    root, found = store_root(), stored()
    if as_json:
        print_json("list", {"store": str(root), "artifacts": [_values(one) for one in found]})
        return
    if not found:
        click.echo(f"no artifacts in {root} (optc compile writes there, {VARIABLE} names another)")
        return
    columns = ("name", "written", "model", "recipe", "bytes", "engines", "signed", "digest")
    rows = table(str(root), *columns, numbers=("bytes",))
    for one in found:
        rows.add_row(*_cells(one))
    show(rows)


def _list_tags(reference: str, plain_http: bool, as_json: bool) -> None:
    from optc.artifact.manifest import short_digest
    from optc.artifact.store.oci.manifest import described
    from optc.artifact.store.oci.reference import parse_reference
    from optc.artifact.store.oci.transfer import open_place

    place = open_place(parse_reference(reference, "REFERENCE"), plain_http=plain_http)
    found: list[dict[str, Any]] = [
        {"tag": one.tag, "oci_digest": one.digest, **described(one.manifest)}
        for one in place.tagged()
    ]
    if as_json:
        print_json("list", {"reference": reference, "tags": found})
        return
    rows = table(reference, "tag", "model", "bytes", "digest", "OCI digest", numbers=("bytes",))
    for one in found:
        size = "-" if one["bytes"] is None else byte_text(one["bytes"])
        digest = short_digest(one["digest"] or "-")
        rows.add_row(one["tag"] or "-", one["model"] or "-", size, digest, one["oci_digest"])
    show(rows)


def _values(one: Stored) -> dict[str, Any]:
    known: dict[str, Any] = dict.fromkeys(("digest", "model", "recipe", "bytes"))
    if one.manifest is not None:
        known = {
            "digest": one.manifest.digest,
            "model": one.manifest.name,
            "recipe": one.manifest.recipe.get("name"),
            "bytes": one.bytes,
        }
    engines = () if one.manifest is None else one.manifest.engines
    return {
        "name": one.name,
        "path": str(one.path),
        "written": _written(one).isoformat(timespec="seconds"),
        **known,
        "engines": [engine.name for engine in engines],
        "signed": one.signed,
        "problem": one.problem,
    }


def _written(one: Stored) -> datetime:
    return datetime.fromtimestamp(one.written_s, UTC)


def _cells(one: Stored) -> list[str]:
    from optc.artifact.manifest import short_digest

    written = _written(one).astimezone().strftime("%Y-%m-%d %H:%M")
    if one.manifest is None:
        return [one.name, written, "-", "-", "-", "-", "-", f"damaged: {one.problem}"]
    engines = ", ".join(f"{e.backend} {e.target.name}" for e in one.manifest.engines)
    signed = "yes" if one.signed else "no"
    recipe = str(one.manifest.recipe.get("name", ""))
    name, size, digest = one.manifest.name, byte_text(one.bytes), short_digest(one.manifest.digest)
    return [one.name, written, name, recipe, size, engines, signed, digest]
