"""The results of the stages of a compile before the gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from optc.artifact.manifest import TokenizerEntry
from optc.backend import BuildOptions
from optc.compiling.building.built_engine import BuiltEngine
from optc.compiling.judging.calibration_domain import DomainVerdict

if TYPE_CHECKING:
    from optc.compiling.lowering.lowering import Lowered
    from optc.compiling.vocabulary.trim import TrimmedVocabulary
    from optc.importer.imported import ImportedModel


@dataclass(frozen=True)
class BuiltTarget:
    """The target's engines in the unfinished artifact, not judged yet.

    Attributes:
        imported: The model.
        vocabulary: What its vocabulary was trimmed to; None where it was not.
        limits: Of the engines.
        lowered: The model through the recipe.
        tokenizer: The artifact's; None where the model has none.
        draft: A draft model that was named, imported.
        domain: Of the calibration text.
        engines: At least one.
    """

    imported: ImportedModel
    vocabulary: TrimmedVocabulary | None
    limits: BuildOptions
    lowered: Lowered
    tokenizer: TokenizerEntry | None
    draft: ImportedModel | None
    domain: DomainVerdict
    engines: list[BuiltEngine]
