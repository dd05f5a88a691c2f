"""`pack-rows`: an encoder becomes a step over packed rows (docs/normal-form.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from optc.ir.forms.batched import BatchedTensors
from optc.ir.forms.form import Form
from optc.ir.forms.packed import STARTS, PackedRows
from optc.ir.functions import DOMAIN
from optc.ir.graph import remove_unused
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.canonicalize.dense_form import check_dense_form
from optc.passes.canonicalize.encoders.fold_rotary import fold_rotary
from optc.passes.canonicalize.encoders.front import source_of_patches
from optc.passes.canonicalize.encoders.pooling import find_normalization, find_pooling
from optc.passes.canonicalize.encoders.positions import number_positions
from optc.passes.canonicalize.encoders.rows import fold_outputs, pack
from optc.passes.canonicalize.encoders.source import Source
from optc.passes.canonicalize.encoders.visible import cut_masks
from optc.passes.canonicalize.find_attention import FindAttention
from optc.passes.canonicalize.find_norms import FindNorms
from optc.passes.canonicalize.fold_constants import FoldConstants
from optc.passes.canonicalize.fold_heads import FoldHeads
from optc.passes.canonicalize.fold_tokens import FoldTokens
from optc.passes.canonicalize.fold_weights import FoldWeights
from optc.passes.canonicalize.probe_heads import ProbeHeads
from optc.passes.canonicalize.remove_no_ops import RemoveNoOps
from optc.passes.canonicalize.slices_to_split import SlicesToSplit
from optc.passes.canonicalize.tables_to_angles import TablesToAngles

_STEPS: tuple[Pass, ...] = (
    FoldConstants(),
    RemoveNoOps(),
    FoldWeights(),
    FoldTokens(),
    FindNorms(),
    TablesToAngles(),
    ProbeHeads(),
    FindAttention(),
    FoldHeads(),
    SlicesToSplit(),
)


@dataclass(frozen=True)
class PackRows(Pass):
    """The tokens of all texts, images or sounds of a call become rows [T, D], without padding.

    1. Masks of attention, which may show all tokens that are no padding, or those less than a
       window away on either side, fall away; attention becomes ``optc::PackedAttention``, whose
       rows see those of their own sequence. Constant factors of queries join its scale.
    2. Integers that count the tokens of a sequence, from any number on, become the input
       ``positions``.
    3. Means, maxima, first and last rows become ``optc::PoolRows``; a division by the length of
       such a vector becomes RMSNormalization.
    4. Patches of images, and convolutions along a sound, become products by row; class tokens and
       places become a table that is added by place.
    All are found by running parts of the graph on small batches, one of whose sequences is padded
    at its end, if texts are. What lies between is brought into the dense form of decoders.

    Attributes:
        kv_dtype: Type of keys and values in attention: ``float32``, ``bfloat16`` or ``int8``.
    """

    name: ClassVar[str] = "pack-rows"
    phase: ClassVar[Phase] = Phase.CANONICAL
    effects: ClassVar[Effect] = Effect.KEEPS_PARAMETERS | Effect.MOVES_WEIGHTS
    required: ClassVar[bool] = True
    takes: ClassVar[tuple[type[Form], ...]] = (BatchedTensors,)
    gives: ClassVar[type[Form]] = PackedRows

    kv_dtype: str = "float32"

    def __post_init__(self) -> None:
        """Refuse types that no kernel has.

        Raises:
            InputError: ``kv_dtype`` is none of them.
        """
        self.check_option("kv_dtype", ("float32", "bfloat16"))

    def run(self, model: ir.Model, context: PassContext = ALONE) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            UnsupportedError: It is no encoder, or something in it is not recognized; the
                message names the node, why, and the nearest miss.
        """
        report, graph = PassReport(), model.graph
        source = source_of_patches(model, report) or Source.of(graph)
        heads = fold_outputs(source)
        windows = cut_masks(source, report)
        starts = ir.Value(
            name=STARTS, type=ir.TensorType(ir.DataType.INT32), shape=ir.Shape(["B+1"])
        )
        graph.inputs.append(starts)
        find_pooling(model, source, starts, report)
        find_normalization(model, source, report)
        remove_unused(model)  # what made masks counts tokens, too
        if source.patches is None:
            number_positions(model, source, report)
        fold_rotary(model, report)
        if source.mask is not None and not source.mask.uses():
            graph.inputs.remove(source.mask)
        for step in _STEPS:
            part = step.run(model)
            report.skipped += part.skipped
        check_dense_form(model)
        model.opset_imports.setdefault(DOMAIN, 1)
        pack(model, source, windows, heads, self.kv_dtype)
        remove_unused(model)
        return report
