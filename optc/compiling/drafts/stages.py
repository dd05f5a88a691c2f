"""Stages that make engines that draft for a target, in the order in which artifacts list them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from optc.artifact.manifest import TokenizerEntry
from optc.artifact.writer import ArtifactWriter
from optc.backend import BuildOptions
from optc.compiling.lowering.lowering import Lowered
from optc.compiling.resolving.options import ResolvedOptions
from optc.compiling.stages.row import BuiltEngines, Done, Stage

if TYPE_CHECKING:
    from optc.compiling.drafts.draft import Draft
    from optc.importer.imported import ImportedModel


@dataclass(frozen=True)
class DraftModel:
    """The model that was named to draft; None where the draft is made of the target."""

    imported: ImportedModel | None


class ImportDraft(Stage):
    """The draft model, so that one that does not suit is refused before the long stages."""

    name: ClassVar[str] = "import draft"

    def wanted(self, done: Done) -> bool:
        """See `Stage`."""
        return done[ResolvedOptions].asked.draft is not None

    def run(self, done: Done) -> DraftModel:
        """See `Stage`.

        Raises:
            InputError: The draft does not suit the target.
            UnsupportedError: Something in it is not recognized.
        """
        from optc.compiling.drafts.draft import import_draft

        options, writer = done[ResolvedOptions], done[ArtifactWriter]
        return DraftModel(import_draft(options, writer, done[Lowered], done.get(TokenizerEntry)))


class DraftStage(Stage):
    """Base of stages that make a draft; it is listed in the report by its role."""

    def run(self, done: Done) -> BuiltEngines:
        """See `Stage`.

        Raises:
            InputError: The draft does not suit the target.
            UnsupportedError: Something in it cannot be lowered.
        """
        draft = self.make(done)
        done.warnings += draft.warnings
        done.report[draft.role] = draft.report
        return BuiltEngines([*done[BuiltEngines].all, *draft.engines])

    def make(self, done: Done) -> Draft:
        """The draft."""
        raise NotImplementedError


class DraftOfModel(DraftStage):
    """The engines of a draft model."""

    name: ClassVar[str] = "draft"

    def wanted(self, done: Done) -> bool:
        """See `Stage`."""
        found = done.get(DraftModel)
        return found is not None and found.imported is not None

    def make(self, done: Done) -> Draft:
        """See `DraftStage`."""
        from optc.compiling.drafts.draft import build_draft

        imported = done[DraftModel].imported
        if imported is None:
            raise RuntimeError("no draft model was imported")
        writer, engines = done[ArtifactWriter], done[BuiltEngines].target
        return build_draft(done[ResolvedOptions], imported, writer, engines)


class DraftOfTarget(DraftStage):
    """The engines of a model that is made of the target."""

    name: ClassVar[str] = "draft"

    def wanted(self, done: Done) -> bool:
        """See `Stage`."""
        return bool(done[ResolvedOptions].candidates)

    def make(self, done: Done) -> Draft:
        """See `DraftStage`."""
        from optc.compiling.drafts.made_of_target import DraftMaker

        options, writer, scratch = done[ResolvedOptions], done[ArtifactWriter], done.scratch
        engines, tokenizer = list(done[BuiltEngines].target), done.get(TokenizerEntry)
        return DraftMaker(options, writer, scratch, done[Lowered], engines, tokenizer).make()


class SelfDraft(DraftStage):
    """The engines of the target's first layers."""

    name: ClassVar[str] = "self-draft"

    def wanted(self, done: Done) -> bool:
        """See `Stage`."""
        return done[ResolvedOptions].asked.self_draft is not None

    def make(self, done: Done) -> Draft:
        """See `DraftStage`."""
        from optc.compiling.drafts.self_draft import build_self_draft

        options, lowered, limits = done[ResolvedOptions], done[Lowered], done[BuildOptions]
        wanted, engines = options.asked.self_draft, done[BuiltEngines].target
        if wanted is None:
            raise RuntimeError("no layers are asked for")
        writer, entry = done[ArtifactWriter], done.get(TokenizerEntry)
        return build_self_draft(options, wanted, writer, lowered, engines, limits, entry)


class Eagle(DraftStage):
    """The engines of a layer that drafts by the target's hidden states."""

    name: ClassVar[str] = "eagle"

    def wanted(self, done: Done) -> bool:
        """See `Stage`."""
        return done[ResolvedOptions].asked.eagle is not None

    def make(self, done: Done) -> Draft:
        """See `DraftStage`."""
        from optc.compiling.drafts.eagle import build_eagle

        options, lowered, limits = done[ResolvedOptions], done[Lowered], done[BuildOptions]
        if options.asked.eagle is None:
            raise RuntimeError("no layer is asked for")
        engines, writer = done[BuiltEngines].target, done[ArtifactWriter]
        return build_eagle(options, options.asked.eagle, writer, lowered, engines, limits)


DRAFTS = (DraftOfModel(), DraftOfTarget(), SelfDraft(), Eagle())
