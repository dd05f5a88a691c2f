"""State that several attempts to compile one model share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optc.compiling.judging.calibration_domain import DomainVerdict
    from optc.importer.imported import ImportedModel
    from optc.proof.reference.blockwise import BlockwiseReference


@dataclass
class SharedWork:
    """Work that is done once; None is not done yet.

    Attributes:
        imported: The model, which every attempt clones.
        domain: Whether the calibration text is of the model's domain.
        reference: The float32 model, whose hidden states are kept for the windows of the gates.
    """

    imported: ImportedModel
    domain: DomainVerdict | None = None
    reference: BlockwiseReference | None = None
