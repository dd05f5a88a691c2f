"""``optc sign``: a signature that says who vouches for an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from optc.cli.artifact_path import ARTIFACT
from optc.cli.options import PATH
from optc.cli.output import json_option, print_json
from optc.errors import InputError

if TYPE_CHECKING:
    from optc.artifact.trust.keys import PrivateKey
    from optc.artifact.trust.sign import Signed


@click.command("sign", short_help="Sign an artifact with a private key.")
@click.argument("artifact", type=ARTIFACT)
@click.option("--key", type=PATH, required=True, metavar="FILE", help="Private key in PEM format.")
@click.option(
    "--password-file", type=PATH, metavar="FILE", help="File with the password of an encrypted key."
)
@json_option
def command(artifact: Path, key: Path, password_file: Path | None, as_json: bool) -> None:
    """Sign ARTIFACT, or a patch, with a key on the curve P-256, P-384 or P-521.

    All files are checked first. Written are model.sig, a Sigstore bundle that 'optc verify --key'
    and the tools of model_signing check, and anew provenance.json and sbom.cdx.json, which it
    covers. The artifact's digest stays as it is.
    """
    from optc.artifact.patches.patch import is_patch
    from optc.artifact.trust.keys import PrivateKey

    opened_key = PrivateKey(key, None if password_file is None else _password(password_file))
    signed, digest = (_sign_patch if is_patch(artifact) else _sign)(artifact, opened_key)
    if as_json:
        values = {"artifact": str(artifact), "digest": digest}
        print_json("sign", {**values, "signature": signed.to_json()})
        return
    click.echo(f"{signed.path}: {signed.files} files signed by the key {signed.key}")
    click.echo(f"digest {digest}")


def _sign(artifact: Path, key: PrivateKey) -> tuple[Signed, str]:
    from optc.artifact.artifact import Artifact
    from optc.artifact.trust.sign import sign

    opened = Artifact.open(artifact)
    return sign(opened, key), opened.digest


def _sign_patch(folder: Path, key: PrivateKey) -> tuple[Signed, str]:
    from optc.artifact.patches.patch import open_patch
    from optc.artifact.trust.sign import sign_files

    opened = open_patch(folder)
    patch = opened.patch
    return sign_files(folder, patch.name, opened.digests, key), patch.digest


def _password(path: Path) -> bytes:
    """The first line of a file."""
    try:
        return path.read_bytes().split(b"\n", 1)[0].rstrip(b"\r")
    except OSError as error:
        problem = f"cannot read {path}: {error.strerror}"
        raise InputError(problem, where="--password-file") from error
