"""The statement that is signed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from optc.artifact.trust.statement import file_statement, signed_digests
from optc.errors import ArtifactError

DIGESTS = {"b": "01" * 32, "a/z": "02" * 32, "a-b": "03" * 32}


def test_files_in_the_order_of_their_paths() -> None:
    statement = file_statement("toy", DIGESTS)
    resources = statement["predicate"]["resources"]
    assert [one["name"] for one in resources] == ["a/z", "a-b", "b"]  # by parts of the path
    ordered = b"".join(bytes.fromhex(one["digest"]) for one in resources)
    (subject,) = statement["subject"]
    assert subject == {"name": "toy", "digest": {"sha256": hashlib.sha256(ordered).hexdigest()}}
    ignored = statement["predicate"]["serialization"]["ignore_paths"]
    assert ignored == ["model.sig", "report.json"]
    assert statement["predicate"]["serialization"]["allow_symlinks"] is False
    assert signed_digests(statement, "model.sig") == DIGESTS


def _shards(statement: dict[str, Any]) -> None:
    statement["predicate"]["serialization"]["method"] = "shards"


def _another_file(statement: dict[str, Any]) -> None:
    statement["predicate"]["resources"][0]["digest"] = "ff" * 32


def _no_hex(statement: dict[str, Any]) -> None:
    statement["predicate"]["resources"][0]["digest"] = "zz"


def _another_hash(statement: dict[str, Any]) -> None:
    statement["predicate"]["resources"][0]["algorithm"] = "blake3"


def _another_predicate(statement: dict[str, Any]) -> None:
    statement["predicateType"] = "https://slsa.dev/provenance/v1"


def _no_subject(statement: dict[str, Any]) -> None:
    statement["subject"] = []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_shards, "serialization.method: invalid enum value 'shards'"),
        (_another_file, "the digest of its subject is not that of its files"),
        (_no_hex, "holds a digest that is no hexadecimal number"),
        (_another_hash, "algorithm: invalid enum value 'blake3'"),
        (_another_predicate, "predicateType: expected text that matches .https://model_signing"),
        (_no_subject, "the digest of its subject"),
    ],
)
def test_other_statements_are_refused(
    change: Callable[[dict[str, Any]], None], message: str
) -> None:
    statement = file_statement("toy", DIGESTS)
    change(statement)
    with pytest.raises(ArtifactError, match=message):
        signed_digests(statement, "model.sig")
