"""Provenance and bill of materials: what they say, and that they say it again."""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import Source, short_digest
from optc.artifact.trust.provenance import provenance
from optc.artifact.trust.sbom import sbom
from optc.artifact.trust.texts import trust_texts
from optc.artifact.writer import ArtifactWriter
from tests.artifact.toy import toy_manifest, write_files

REPORT: dict[str, Any] = {
    "gates": [
        {"name": "kl_mean", "value": 0.001, "bound": 0.01, "passed": True, "engine": "target"},
        {"name": "decode_speedup", "value": None, "bound": None, "passed": None},
    ]
}


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    with ArtifactWriter(tmp_path / "a") as writer:
        write_files(writer)
        return writer.commit(toy_manifest(writer.hashed_files()), REPORT)


def read(artifact: Artifact, name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((artifact.path / name).read_bytes())
    return value


def test_a_compile_writes_both_outside_the_digest(artifact: Artifact) -> None:
    assert read(artifact, "provenance.json") == provenance(artifact.manifest, REPORT)
    assert read(artifact, "sbom.cdx.json") == sbom(artifact.manifest, REPORT)
    (artifact.path / "sbom.cdx.json").unlink()
    assert Artifact.open(artifact.path).digest == artifact.digest
    assert trust_texts(artifact.manifest, REPORT) == trust_texts(artifact.manifest, dict(REPORT))


def test_the_subjects_are_the_files(artifact: Artifact) -> None:
    statement = read(artifact, "provenance.json")
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    subjects = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    assert len(subjects) == 6
    for name, digest in subjects.items():
        assert hashlib.sha256((artifact.path / name).read_bytes()).hexdigest() == digest


def test_provenance_says_source_recipe_versions_and_figures(artifact: Artifact) -> None:
    predicate = read(artifact, "provenance.json")["predicate"]
    definition, details = predicate["buildDefinition"], predicate["runDetails"]
    assert definition["externalParameters"]["recipe"] == {"name": "fp32"}
    (engine,) = definition["externalParameters"]["engines"]
    assert (engine["name"], engine["target"], engine["maxContext"]) == ("target", "x86-64-v3", 32)
    assert definition["internalParameters"] == {"pipeline": "canonicalize,kv-cache"}
    assert definition["resolvedDependencies"] == [
        {"name": "toy", "digest": {"sha256": "ab" * 32}},
        {"name": "optc", "uri": "pkg:pypi/optc@0.1.0"},
    ]
    assert details["builder"]["version"] == {"optc": "0.1.0"}
    assert details["metadata"]["invocationId"] == artifact.digest
    (figures,) = details["byproducts"]
    assert figures["annotations"] == {"gated": True, "gates": REPORT["gates"]}


def test_models_of_drafts_are_dependencies_too(artifact: Artifact) -> None:
    manifest = artifact.manifest
    draft = replace(
        manifest.engines[0], name="draft", role="draft", source=Source("small", "cd" * 32, "x", {})
    )
    both = replace(manifest, engines=(*manifest.engines, draft))
    names = [
        one["name"]
        for one in provenance(both, {})["predicate"]["buildDefinition"]["resolvedDependencies"]
    ]
    assert names == ["toy", "small", "optc"]
    kinds = [one["type"] for one in sbom(both, {})["components"]]
    assert kinds.count("machine-learning-model") == 2


def test_the_bill_of_materials(artifact: Artifact) -> None:
    found = read(artifact, "sbom.cdx.json")
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert uuid.UUID(found["serialNumber"]).version == 4
    whole = found["metadata"]["component"]
    assert (whole["type"], whole["name"]) == ("machine-learning-model", "toy")
    assert found["version"] == 1  # CycloneDX's number of a bill that was not amended
    assert whole["version"] == short_digest(artifact.digest)
    assert whole["hashes"] == [{"alg": "SHA-256", "content": artifact.digest}]
    card = whole["modelCard"]
    assert card["modelParameters"] == {"architectureFamily": "llama"}
    (metric,) = card["quantitativeAnalysis"]["performanceMetrics"]
    assert metric == {"type": "kl_mean", "value": "0.001", "slice": "target"}
    files = {c["name"] for c in found["components"] if c["type"] == "file"}
    assert files == {entry.path for entry in artifact.manifest.files}
    (package,) = (c for c in found["components"] if c["type"] == "library")
    assert package["purl"] == "pkg:pypi/optc@0.1.0"
    references = [component["bom-ref"] for component in found["components"]]
    assert len(set(references)) == len(references)
    assert found["dependencies"] == [{"ref": "artifact", "dependsOn": references}]


def test_versions_with_a_build_are_escaped_in_purls(artifact: Artifact) -> None:
    manifest = replace(artifact.manifest, packages={"Apache_TVM": "0.27+cpu"})
    (package,) = (c for c in sbom(manifest, {})["components"] if c["type"] == "library")
    assert package["purl"] == "pkg:pypi/apache-tvm@0.27%2Bcpu"
