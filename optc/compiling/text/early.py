"""Checks of a lowered model that fail before the long stages begin."""

from __future__ import annotations

from optc.artifact.writer import ArtifactWriter
from optc.compiling.building.built_engine import weight_copies
from optc.compiling.drafts.eagle_layer import make_draft_layer
from optc.compiling.drafts.layer_skip import divided
from optc.compiling.lowering.lowering import Lowered
from optc.compiling.resolving.limits import check_disk, check_memory, reading_bytes
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import ResolvedOptions


def check_limits(
    options: ResolvedOptions, lowered: Lowered, writer: ArtifactWriter, memory: PeakMemory
) -> None:
    """Refuse a compile whose drafts do not suit the model, or that neither disk nor memory holds.

    Raises:
        InputError: Says what does not fit.
        UnsupportedError: The model cannot be divided into layers.
    """
    asked = options.asked
    if isinstance(asked.self_draft, int):
        divided(lowered.reference, asked.self_draft)
    if asked.eagle is not None:
        make_draft_layer(lowered.reference.clone(), asked.eagle)
    check_disk(lowered.model, writer, weight_copies(options.engines))
    memory.foretold_bytes = check_memory(
        lowered.reference,
        memory.sample(),
        options.max_ram_bytes,
        gated=not asked.no_gates,
        bisected=asked.bisect,
        read_bytes=reading_bytes(lowered.reference, options.recipe.pipeline.passes),
    )
