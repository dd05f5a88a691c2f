"""Checks of a lowered model that fail before the long stages begin."""

from __future__ import annotations

from optc.artifact import ArtifactWriter
from optc.driver.compiling.built_engine import weight_copies
from optc.driver.compiling.limits import check_disk, check_memory, reading_bytes
from optc.driver.compiling.lowering import Lowered
from optc.driver.compiling.memory import PeakMemory
from optc.driver.compiling.options import ResolvedOptions
from optc.driver.drafts.eagle_layer import make_draft_layer
from optc.driver.drafts.layer_skip import divided


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
