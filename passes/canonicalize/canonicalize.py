"""`canonicalize`: an imported graph becomes the dense form (docs/normal-form.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.forms.decoder import Dense, Exported
from optc.ir.forms.form import Form
from optc.ir.functions import DOMAIN, is_op
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dense_form import check_dense_form
from optc.passes.canonicalize.encoded.find_cross_attention import FindCrossAttention
from optc.passes.canonicalize.experts.choose_experts import ChooseExperts
from optc.passes.canonicalize.experts.find_experts import FindExperts
from optc.passes.canonicalize.experts.find_router import FindRouter
from optc.passes.canonicalize.find_attention import FindAttention
from optc.passes.canonicalize.find_norms import FindNorms
from optc.passes.canonicalize.fold_constants import FoldConstants
from optc.passes.canonicalize.fold_head_constants import FoldHeadConstants
from optc.passes.canonicalize.fold_heads import FoldHeads
from optc.passes.canonicalize.fold_tokens import FoldTokens
from optc.passes.canonicalize.fold_weights import FoldWeights
from optc.passes.canonicalize.lookups.cover_tables import CoverTables
from optc.passes.canonicalize.means_to_products import MeansToProducts
from optc.passes.canonicalize.mixers.fold_channels import FoldChannels
from optc.passes.canonicalize.mixers.fold_recurrences import FoldRecurrences
from optc.passes.canonicalize.mixers.parts_of_heads import PartsOfHeads
from optc.passes.canonicalize.places_to_positions import PlacesToPositions
from optc.passes.canonicalize.probe_heads import ProbeHeads
from optc.passes.canonicalize.remove_no_ops import RemoveNoOps
from optc.passes.canonicalize.slices_to_split import SlicesToSplit
from optc.passes.canonicalize.streams.part_streams import PartStreams
from optc.passes.canonicalize.tables_to_angles import TablesToAngles

#: The steps in order; each is a pass of its own.
STEPS: tuple[Pass, ...] = (
    FindCrossAttention(),
    FoldConstants(),
    PlacesToPositions(),
    RemoveNoOps(),
    CoverTables(),
    PartStreams(),
    FoldWeights(),
    FoldChannels(),
    FindExperts(),
    FindRouter(),
    ChooseExperts(),
    FoldTokens(),
    FindNorms(),
    MeansToProducts(),
    FoldHeadConstants(),
    TablesToAngles(),
    ProbeHeads(),
    FindAttention(),
    PartsOfHeads(),
    FoldHeads(),
    FoldRecurrences(),
    ProbeHeads(),  # again: spelled-out attention has heads that are fused in its projection
    SlicesToSplit(),
)


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Run `STEPS` and check that nothing but the dense form is left."""

    name: ClassVar[str] = "canonicalize"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS | Effect.MOVES_WEIGHTS
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (Exported,)
    gives: ClassVar[type[Form]] = Dense

    def ensures(self, model: ir.Model) -> None:
        """No value with an axis of heads and no Transpose is left."""
        for node in model.graph:
            if is_op(node, "Transpose", "Reshape"):
                raise RuntimeError(f"canonicalize left {node.name} ({node.op_type})")

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            UnsupportedError: Something is not recognized; the message names the node, why, and
                the nearest miss.
        """
        report, attentions = PassReport(), 0
        for at, step in enumerate(STEPS):
            # Where none was found, the message names what the model has, not what is made of it.
            if step in STEPS[:at] and not attentions:
                continue
            part = step.run(model)
            attentions += sum(part.details.values()) if isinstance(step, FindAttention) else 0
            for kind, count in part.details.items():
                report.add(f"{step.name}: {kind}", count)
            report.skipped += part.skipped
        check_dense_form(model)
        model.opset_imports.setdefault(DOMAIN, 1)
        Dense().attach(model)
        return report
