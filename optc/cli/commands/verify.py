"""``optc verify``: every byte of an artifact against its manifest."""

from __future__ import annotations

from pathlib import Path

import click

from optc.cli.output import byte_text, json_option, print_json, print_warnings
from optc.cli.progress import progress_on_stderr


@click.command("verify", short_help="Check every file of an artifact against its manifest.")
@click.argument("artifact", type=click.Path(path_type=Path))
@json_option
def command(artifact: Path, as_json: bool) -> None:
    """Check size and sha256 of every file of ARTIFACT; name the first one that differs."""
    from optc.artifact import read_manifest
    from optc.artifact.verify import check_files, unlisted_files

    manifest = read_manifest(artifact)
    total = sum(entry.bytes for entry in manifest.files)
    with progress_on_stderr() as progress:
        check_files(
            artifact,
            manifest.files,
            progress=lambda path, count: progress(f"hashed {path}", count, count),
        )
    strangers = unlisted_files(artifact, manifest.files)
    warnings = [f"{name} is not in the manifest" for name in strangers]
    if as_json:
        figures = {"files": len(manifest.files), "bytes": total}
        identity = {"artifact": str(artifact), "digest": manifest.digest}
        print_json("verify", {**identity, "ok": True, **figures}, warnings)
        return
    print_warnings(warnings)
    click.echo(f"{artifact}: {len(manifest.files)} files, {byte_text(total)}, all as written")
    click.echo(f"digest {manifest.digest}")
