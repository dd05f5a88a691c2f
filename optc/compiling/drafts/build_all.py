"""All engines that draft for a target, in the order in which an artifact lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from optc.artifact.manifest import TokenizerEntry
from optc.artifact.writer import ArtifactWriter
from optc.backend import BuildOptions
from optc.compiling.building.built_engine import BuiltEngine
from optc.compiling.resolving.options import ResolvedOptions

if TYPE_CHECKING:
    from optc.compiling.drafts.draft import Draft
    from optc.compiling.lowering.lowering import Lowered
    from optc.importer.imported import ImportedModel


@dataclass(frozen=True)
class Drafting:
    """The inputs of building drafts, and the engines beside them.

    Attributes:
        options: Of the compile.
        writer: Of the artifact.
        scratch: Folder for files that go with the compile.
        lowered: The target, through the recipe.
        engines: The target's.
        limits: Of engines.
        tokenizer: The artifact's.
        stage: Names and times a stage.
    """

    options: ResolvedOptions
    writer: ArtifactWriter
    scratch: Path
    lowered: Lowered
    engines: Sequence[BuiltEngine]
    limits: BuildOptions
    tokenizer: TokenizerEntry | None
    stage: Callable[[str], AbstractContextManager[None]]


def build_drafts(drafting: Drafting, imported: ImportedModel | None) -> list[Draft]:
    """Whatever of the four kinds of drafts the compile was asked for; ``imported`` is the draft
    model.

    Raises:
        InputError: A draft does not suit the target.
        UnsupportedError: Something in it cannot be lowered.
    """
    options, writer = drafting.options, drafting.writer
    lowered, engines, limits = drafting.lowered, list(drafting.engines), drafting.limits
    drafts: list[Draft] = []
    if imported is not None:
        with drafting.stage("draft"):
            from optc.compiling.drafts.draft import build_draft

            drafts.append(build_draft(options, imported, writer, engines))
    if options.candidates:
        with drafting.stage("draft"):
            from optc.compiling.drafts.made_of_target import DraftMaker

            tokenizer, scratch = drafting.tokenizer, drafting.scratch
            maker = DraftMaker(options, writer, scratch, lowered, engines, tokenizer)
            drafts.append(maker.make())
    if options.asked.self_draft is not None:
        with drafting.stage("self-draft"):
            from optc.compiling.drafts.self_draft import build_self_draft

            wanted, tokenizer = options.asked.self_draft, drafting.tokenizer
            drafts.append(
                build_self_draft(options, wanted, writer, lowered, engines, limits, tokenizer)
            )
    if options.asked.eagle is not None:
        with drafting.stage("eagle"):
            from optc.compiling.drafts.eagle import build_eagle

            folder = options.asked.eagle
            drafts.append(build_eagle(options, folder, writer, lowered, engines, limits))
    return drafts
