"""``optc rm``: artifacts go, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.output import byte_text, json_option, print_json


@click.command("rm", short_help="Remove artifacts.")
@click.argument("artifacts", nargs=-1, required=True, type=ARTIFACT)
@json_option
def command(artifacts: tuple[Path, ...], as_json: bool) -> None:
    """Remove ARTIFACTS, names in the local store or paths.

    What is no artifact is left alone, and so are all after it. Processes that have one loaded keep
    its files until they end.
    """
    from optc.artifact.store.local import remove

    removed = []
    for path in artifacts:
        size = remove(path)
        removed.append({"path": str(path), "bytes": size})
        if not as_json:
            click.echo(f"removed {path}: {byte_text(size)}")
    if as_json:
        print_json("rm", {"removed": removed})
