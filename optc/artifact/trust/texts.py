"""Provenance and bill of materials as they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optc.artifact.jsonio import pretty_json
from optc.artifact.manifest import Manifest
from optc.artifact.trust.names import PROVENANCE_NAME, SBOM_NAME
from optc.artifact.trust.provenance import provenance
from optc.artifact.trust.sbom import sbom


def trust_texts(manifest: Manifest, report: Mapping[str, Any]) -> dict[str, bytes]:
    """Both, by the names of their files."""
    return {
        PROVENANCE_NAME: pretty_json(provenance(manifest, report)),
        SBOM_NAME: pretty_json(sbom(manifest, report)),
    }
