"""The statement that is signed: the sha256 of every file of an artifact's folder.

It is an in-toto statement with the predicate of OpenSSF's model signing
(https://github.com/sigstore/model-transparency, docs/model_signing_format.md), so that its tools
verify what optc signs. Its subject's digest is the sha256 over the digests of the files, in the
order of their paths.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from msgspec import Struct, field

from optc.artifact.trust.names import UNSIGNED
from optc.artifact.trust.provenance import STATEMENT_TYPE
from optc.errors import ArtifactError
from optc.system.foreign.typed_json import NEWER, exactly, typed

PREDICATE_TYPE = "https://model_signing/signature/v1.0"


class _Serialization(Struct, frozen=True):
    method: Literal["files"]
    hash_type: Literal["sha256"]


class _Resource(Struct, frozen=True):
    name: str
    algorithm: Literal["sha256"]
    digest: str


class _Predicate(Struct, frozen=True):
    serialization: _Serialization
    resources: list[_Resource]


class _Digest(Struct, frozen=True):
    sha256: str


class _Subject(Struct, frozen=True):
    digest: _Digest


class _Statement(Struct, frozen=True):
    """The fields of a statement that are read: of this type, with this predicate."""

    type: Annotated[str, exactly(STATEMENT_TYPE)] = field(name="_type")
    predicate_type: Annotated[str, exactly(PREDICATE_TYPE)] = field(name="predicateType")
    predicate: _Predicate
    subject: list[_Subject]


def file_statement(name: str, digests: Mapping[str, str]) -> dict[str, Any]:
    """The statement.

    Args:
        name: Of the model, for people.
        digests: sha256 in hex by POSIX path, relative to the artifact; all files but `UNSIGNED`.
    """
    paths = sorted(digests, key=PurePosixPath)
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": _root([digests[p] for p in paths])}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": list(UNSIGNED),
            },
            "resources": [
                {"name": path, "algorithm": "sha256", "digest": digests[path]} for path in paths
            ],
        },
    }


def signed_digests(statement: object, where: str) -> dict[str, str]:
    """The digests that a statement whose signature was verified states, by path.

    Raises:
        ArtifactError: It is another kind of statement, of files in shards or by other hashes, or
            contradicts itself.
    """
    signed = typed(statement, _Statement, where)
    found = {one.name: one.digest for one in signed.predicate.resources}
    try:
        root = _root(list(found.values()))
    except ValueError as error:
        raise ArtifactError(
            "it holds a digest that is no hexadecimal number", where=where, hint=NEWER
        ) from error
    if [one.digest.sha256 for one in signed.subject] != [root]:
        problem = "the digest of its subject is not that of its files"
        raise ArtifactError(problem, where=where, hint=NEWER)
    return found


def _root(digests: list[str]) -> str:
    whole = hashlib.sha256()
    for digest in digests:
        whole.update(bytes.fromhex(digest))
    return whole.hexdigest()
