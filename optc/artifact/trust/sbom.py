"""The contents of an artifact, as a CycloneDX 1.6 bill of materials (https://cyclonedx.org).

Components are the artifact's files, the source models and the packages that compiled it. The serial
number follows from the artifact's digest, and there is no time: the same artifact has the same one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from optc.artifact.manifest import Manifest, short_digest
from optc.artifact.trust.provenance import sources
from optc.artifact.trust.purl import python_purl

_ARTIFACT = "artifact"


def sbom(manifest: Manifest, report: Mapping[str, Any]) -> dict[str, Any]:
    """The bill of materials; its model card has the figures of the gates."""
    components = list(_components(manifest))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.UUID(manifest.digest[:32], version=4).urn,
        "version": 1,
        "metadata": {
            "tools": {"components": [_package("optc", manifest.packages.get("optc", "unknown"))]},
            "component": {
                "type": "machine-learning-model",
                "bom-ref": _ARTIFACT,
                "name": manifest.name,
                "version": short_digest(manifest.digest),
                "hashes": _hashes(manifest.digest),
                "modelCard": _model_card(manifest, report),
            },
        },
        "components": components,
        "dependencies": [
            {"ref": _ARTIFACT, "dependsOn": [component["bom-ref"] for component in components]}
        ],
    }


def _components(manifest: Manifest) -> Iterator[dict[str, Any]]:
    for source in sources(manifest):
        yield {
            "type": "machine-learning-model",
            "bom-ref": f"source:{source.digest}",
            "name": source.name,
            "hashes": _hashes(source.digest),
        }
    for package, version in sorted(manifest.packages.items()):
        yield {"bom-ref": f"package:{package}", **_package(package, version)}
    for entry in manifest.files:
        yield {
            "type": "file",
            "bom-ref": f"file:{entry.path}",
            "name": entry.path,
            "hashes": _hashes(entry.sha256),
        }


def _package(name: str, version: str) -> dict[str, Any]:
    purl = python_purl(name, version)
    return {"type": "library", "name": name, "version": version, "purl": purl}


def _hashes(digest: str) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": digest}]


def _model_card(manifest: Manifest, report: Mapping[str, Any]) -> dict[str, Any]:
    metrics = [
        {"type": gate["name"], "value": str(gate["value"]), "slice": gate.get("engine", "target")}
        for gate in report.get("gates", ())
        if gate["value"] is not None
    ]
    return {
        "modelParameters": {"architectureFamily": manifest.source.family},
        "quantitativeAnalysis": {"performanceMetrics": metrics},
        "properties": [
            {"name": "optc:recipe", "value": str(manifest.recipe.get("name", ""))},
            {"name": "optc:pipeline", "value": manifest.pipeline},
        ],
    }
