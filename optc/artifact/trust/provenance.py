"""The origin of an artifact, as an in-toto statement with SLSA's predicate.

https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and
https://slsa.dev/spec/v1.0/provenance: subjects are the artifact's files, resolved dependencies the
source models and packages, external parameters what the user asked for, byproducts the figures of
the gates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from optc.artifact.jsonio import pretty_json
from optc.artifact.manifest import MANIFEST_NAME, REPORT_NAME, EngineEntry, Manifest, Source
from optc.artifact.trust.purl import python_purl

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:optc:compile:v1"


def provenance(manifest: Manifest, report: Mapping[str, Any]) -> dict[str, Any]:
    """The statement, which depends on no time: the same manifest and figures give the same one."""
    written = hashlib.sha256(pretty_json(manifest.to_json())).hexdigest()
    files = ((entry.path, entry.sha256) for entry in manifest.files)
    return {
        "_type": STATEMENT_TYPE,
        "subject": [
            {"name": name, "digest": {"sha256": digest}}
            for name, digest in ((MANIFEST_NAME, written), *files)
        ],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "model": manifest.source.name,
                    "recipe": manifest.recipe,
                    "engines": [_engine(engine) for engine in manifest.engines],
                },
                "internalParameters": {"pipeline": manifest.pipeline},
                "resolvedDependencies": list(_dependencies(manifest)),
            },
            "runDetails": {
                "builder": {
                    "id": "urn:optc",
                    "version": {"optc": manifest.packages.get("optc", "unknown")},
                },
                "metadata": {"invocationId": manifest.digest},
                "byproducts": [
                    {
                        "name": "gates",
                        "uri": REPORT_NAME,
                        "annotations": {"gated": manifest.gated, "gates": _gates(report)},
                    }
                ],
            },
        },
    }


def _engine(engine: EngineEntry) -> dict[str, Any]:
    limits = {} if engine.step is None else {"maxContext": engine.step.max_context}
    return {
        "name": engine.name,
        "role": engine.role,
        "backend": engine.backend,
        "target": engine.target.name,
        **limits,
    }


def _dependencies(manifest: Manifest) -> Iterator[dict[str, Any]]:
    for source in sources(manifest):
        yield {"name": source.name, "digest": {"sha256": source.digest}}
    for package, version in sorted(manifest.packages.items()):
        yield {"name": package, "uri": python_purl(package, version)}


def sources(manifest: Manifest) -> list[Source]:
    """The model that was compiled, and those that engines of another one came from."""
    others = [engine.source for engine in manifest.engines if engine.source is not None]
    return list({source.digest: source for source in (manifest.source, *others)}.values())


def _gates(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    keys = ("engine", "name", "value", "bound", "passed", "measured_on")
    return [{key: gate[key] for key in keys if key in gate} for gate in report.get("gates", ())]
