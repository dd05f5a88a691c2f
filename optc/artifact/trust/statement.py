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
from typing import Any

from optc.artifact.jsonio import Fields
from optc.artifact.trust.names import UNSIGNED
from optc.artifact.trust.provenance import STATEMENT_TYPE

PREDICATE_TYPE = "https://model_signing/signature/v1.0"


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
    f = Fields(statement, where)
    f.choice("_type", [STATEMENT_TYPE])
    f.choice("predicateType", [PREDICATE_TYPE])
    predicate = f.child("predicate")
    serialization = predicate.child("serialization")
    serialization.choice("method", ["files"])
    serialization.choice("hash_type", ["sha256"])
    found: dict[str, str] = {}
    for resource in predicate.children("resources"):
        resource.choice("algorithm", ["sha256"])
        found[resource.get("name", str)] = resource.get("digest", str)
    subjects = f.children("subject")
    try:
        root = _root(list(found.values()))
    except ValueError as error:
        raise f.error("it holds a digest that is no hexadecimal number") from error
    if len(subjects) != 1 or subjects[0].child("digest").get("sha256", str) != root:
        raise f.error("the digest of its subject is not that of its files")
    return found


def _root(digests: list[str]) -> str:
    whole = hashlib.sha256()
    for digest in digests:
        whole.update(bytes.fromhex(digest))
    return whole.hexdigest()
