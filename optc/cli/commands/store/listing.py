"""``optc list``: the artifacts of the local store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from optc.cli.output import byte_text, json_option, print_json, show, table

if TYPE_CHECKING:
    from optc.store.local import Stored


@click.command("list", short_help="List the artifacts of the local store.")
@json_option
def command(as_json: bool) -> None:
    """List the artifacts in $OPTC_STORE, else in the folder artifacts: names that other commands
    take in the place of a path. Nothing is checked but that their manifests can be read.
    """
    from optc.store.local import VARIABLE, store_root, stored

    root, found = store_root(), stored()
    if as_json:
        print_json("list", {"store": str(root), "artifacts": [_values(one) for one in found]})
        return
    if not found:
        click.echo(f"no artifacts in {root} (optc compile writes there, {VARIABLE} names another)")
        return
    columns = ("name", "model", "recipe", "bytes", "engines", "signed", "digest")
    rows = table(str(root), *columns, numbers=("bytes",))
    for one in found:
        rows.add_row(*_cells(one))
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
        **known,
        "engines": [engine.name for engine in engines],
        "signed": one.signed,
        "problem": one.problem,
    }


def _cells(one: Stored) -> list[str]:
    if one.manifest is None:
        return [one.name, "-", "-", "-", "-", "-", f"damaged: {one.problem}"]
    engines = ", ".join(f"{e.backend} {e.target.name}" for e in one.manifest.engines)
    signed = "yes" if one.signed else "no"
    recipe = str(one.manifest.recipe.get("name", ""))
    name, size, digest = one.manifest.name, byte_text(one.bytes), one.manifest.digest[:12]
    return [one.name, name, recipe, size, engines, signed, digest]
