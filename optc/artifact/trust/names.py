"""Names of the files beside an artifact's own."""

from __future__ import annotations

from optc.artifact.manifest import REPORT_NAME

SIGNATURE_NAME = "model.sig"
PROVENANCE_NAME = "provenance.json"
SBOM_NAME = "sbom.cdx.json"
#: No signature covers these: itself, and the report, to which ``optc verify --gates`` adds.
UNSIGNED = (SIGNATURE_NAME, REPORT_NAME)
#: All of this room, which no manifest lists.
BESIDE = (SIGNATURE_NAME, PROVENANCE_NAME, SBOM_NAME)
