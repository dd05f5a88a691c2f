"""Signing an artifact, and checking the signature of one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optc.artifact.artifact import Artifact
from optc.artifact.jsonio import canonical_json, read_json
from optc.artifact.manifest import MANIFEST_NAME, short_digest
from optc.artifact.trust.bundle import Bundle, pre_authentication, read_bundle
from optc.artifact.trust.keys import PrivateKey, PublicKey
from optc.artifact.trust.names import PROVENANCE_NAME, SBOM_NAME, SIGNATURE_NAME, UNSIGNED
from optc.artifact.trust.statement import file_statement, signed_digests
from optc.artifact.trust.texts import trust_texts
from optc.errors import ArtifactError, InputError, SignatureError
from optc.system.foreign.file import read_file
from optc.system.safe_json import JSONError, parse_json
from optc.system.whole_file import write_whole


@dataclass(frozen=True)
class Signed:
    """The signature of an artifact.

    Attributes:
        path: Its file.
        key: sha256 in hex of the public key's PEM text.
        files: How many files it covers.
    """

    path: Path
    key: str
    files: int

    def to_json(self) -> dict[str, Any]:
        """The value of ``signature`` in JSON objects."""
        return {"path": str(self.path), "key": self.key, "files": self.files}


def sign(artifact: Artifact, key: PrivateKey) -> Signed:
    """Sign an artifact whose files have been checked; replaces an earlier signature.

    Provenance and bill of materials are written anew, with the figures that the report has now. The
    signature covers them, the manifest and every file that it lists.

    Raises:
        ArtifactError: A file lies in the folder that the manifest does not list.
        InputError: The folder cannot be written.
    """
    folder = artifact.path
    for name, text in trust_texts(artifact.manifest, artifact.report()).items():
        _replace(folder / name, text)
    return sign_files(folder, artifact.manifest.name, _digests(artifact), key)


def sign_files(folder: Path, name: str, digests: Mapping[str, str], key: PrivateKey) -> Signed:
    """Sign a folder whose files have been checked; replaces an earlier signature.

    Args:
        folder: It.
        name: Of the model.
        digests: sha256 in hex of its files by path.
        key: That signs.

    Raises:
        ArtifactError: Another file lies in the folder.
        InputError: The folder cannot be written.
    """
    _refuse_others(folder, digests)
    payload = canonical_json(file_statement(name, digests))
    bundle = Bundle(payload, key.sign(pre_authentication(payload)), key.public.hint)
    path = folder / SIGNATURE_NAME
    _replace(path, canonical_json(bundle.to_json()))
    return Signed(path, key.public.hint, len(digests))


def check_signature(artifact: Artifact, key: PublicKey) -> Signed:
    """Check that ``key`` signed what the artifact's manifest lists, and every file beside it.

    Contents of listed files are the manifest's to check, which is signed: do it too
    (`optc.artifact.verify.check_files`).

    Raises:
        SignatureError: It has no signature, another key signed it, or files differ from those that
            were signed.
        ArtifactError: The signature is damaged.
    """
    return check_signed(
        artifact.path, lambda signed: _digests(artifact, *set(UNSIGNED) & set(signed)), key
    )


def check_signed(
    folder: Path, digests: Callable[[Mapping[str, str]], Mapping[str, str]], key: PublicKey
) -> Signed:
    """Check that ``key`` signed the files of a folder.

    Args:
        folder: It.
        digests: From what was signed to the sha256 in hex of its files as they are, by path.
        key: That must have signed.

    Raises:
        SignatureError, ArtifactError: As `check_signature`.
    """
    path = folder / SIGNATURE_NAME
    where = str(path)
    if not os.path.lexists(path):
        raise SignatureError("is not signed", where=str(folder), hint="optc sign --key")
    bundle = read_bundle(read_json(path), where)
    if bundle.key_hint != key.hint:
        raise SignatureError(
            f"another key signed it: sha256 {short_digest(bundle.key_hint)}…, "
            f"not {short_digest(key.hint)}…",
            where=where,
        )
    key.verify(bundle.signature, pre_authentication(bundle.payload), where)
    try:
        statement = parse_json(bundle.payload)
    except JSONError as error:
        raise ArtifactError(f"the statement is not JSON: {error}", where=where) from error
    signed = signed_digests(statement, where)
    _compare(folder, signed, digests(signed))
    _refuse_others(folder, signed)
    return Signed(path, key.hint, len(signed))


def _compare(folder: Path, signed: Mapping[str, str], present: Mapping[str, str]) -> None:
    for name in sorted({*signed, *present}):
        if name not in present:
            raise SignatureError("the file was signed and is missing", where=str(folder / name))
        if name not in signed:
            raise SignatureError("the signature does not cover it", where=str(folder / name))
        if signed[name] != present[name]:
            raise SignatureError("is not the file that was signed", where=str(folder / name))


def _digests(artifact: Artifact, *others: str) -> dict[str, str]:
    """sha256 of the manifest and of what stands beside it, and those that the manifest states.

    Args:
        artifact: Opened.
        others: Names of files that another tool's signature covers too.
    """
    found = {entry.path: entry.sha256 for entry in artifact.manifest.files}
    for name in (MANIFEST_NAME, PROVENANCE_NAME, SBOM_NAME, *others):
        path = artifact.path / name
        if path.is_file() and not path.is_symlink():
            found[name] = hashlib.sha256(read_file(path)).hexdigest()
    return found


def _refuse_others(folder: Path, known: Mapping[str, str]) -> None:
    """Refuse files that are neither signed nor left out of all signatures."""
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
    for name in sorted(present - set(known) - set(UNSIGNED)):
        raise SignatureError(
            "is no file of the artifact, and no signature covers it",
            where=str(folder / name),
            hint="remove it",
        )


def _replace(path: Path, data: bytes) -> None:
    """Write a file in one step, so that none is ever half there."""
    try:
        write_whole(path, data)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}",
            where=str(path),
            hint="the artifact's folder must be writable to sign it",
        ) from error
