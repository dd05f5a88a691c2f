"""Runs the import and the passes that move weights on marked tensors, without a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PretrainedConfig

from optc.compiling.export.origins.marks import Marks
from optc.compiling.export.origins.origin import Origin, depends, origin_of
from optc.importer.attach import attach_weights
from optc.importer.export import export_decoder
from optc.importer.skeleton import Skeleton
from optc.importer.text_model.buffers import make_scalars_constant
from optc.ir.pipeline import registry as pass_registry
from optc.ir.pipeline.entries import read_pipeline


@dataclass(frozen=True)
class Origins:
    """The origins of the weights of a graph.

    Attributes:
        shapes: Of everything that a checkpoint of the class holds: parameters, and buffers that
            are stored; those that share memory once.
        by_name: Of the graph's weights; None of one that is computed from parameters, or from none.
        computed: Of the former the names.
    """

    shapes: dict[str, tuple[int, ...]]
    by_name: dict[str, Origin | None]
    computed: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters by their numbers."""
        return tuple(self.shapes)


def trace_origins(config: PretrainedConfig, skeleton: Skeleton, passes: Sequence[str]) -> Origins:
    """The origins of the weights of an engine.

    Args:
        config: Of the class.
        skeleton: Of the class.
        passes: Those that move weights (`Effect.MOVES_WEIGHTS`), in order.

    Raises:
        UnsupportedError: The decoder does something that cannot be captured.
    """
    shapes = {n: shape for n, shape in skeleton.shapes.items() if n not in skeleton.tied}
    stored = {
        n: skeleton.buffers[n].shape for n in sorted(skeleton.stored & skeleton.buffers.keys())
    }
    shapes |= {name: shape for name, shape in stored.items() if shape}
    marks = Marks(shapes)
    model = export_decoder(config, allow_remote_code=False).model
    matched = {
        name: marks.tensors[skeleton.tied.get(name, name)] for name in (*skeleton.shapes, *shapes)
    }
    attach_weights(model, skeleton, matched)
    make_scalars_constant(model)
    read_pipeline(passes, pass_registry).run(model)
    tensors = {name: value.const_value for name, value in model.graph.initializers.items()}
    found = {name: origin_of(tensor, marks) for name, tensor in tensors.items()}
    others = (name for name, origin in found.items() if origin is None)
    computed = frozenset(name for name in others if depends(tensors[name], marks))
    return Origins(shapes, found, computed)
