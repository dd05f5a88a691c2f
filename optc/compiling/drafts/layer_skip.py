"""A model's first layers and its head, as a draft of itself.

Layers of a trained decoder add less and less; the residual stream after the first n of them, put
through the final norm and the head, often names the same next token (LayerSkip: Elhoushi et al.,
2024; Draft & Verify: Zhang et al., 2024). The weights are those of the model.
"""

from __future__ import annotations

import onnx_ir as ir

from optc.compiling.resolving.preflight import check_layers
from optc.errors import UnsupportedError
from optc.ir.graph import remove_unused
from optc.proof.reference.partition import Partition, partition

#: What may stand between the last layer and the head.
_NORMS = ("RMSNormalization", "LayerNormalization")


def divided(model: ir.Model, count: int) -> Partition:
    """The parts of a model in dense form that has more than ``count`` layers.

    Raises:
        InputError: It has not.
        UnsupportedError: Its layers cannot be told apart.
    """
    parts = partition(model)
    check_layers(count, len(parts.blocks))
    return parts


def keep_first_layers(model: ir.Model, count: int) -> None:
    """Cut all layers but the first ``count`` out of a model in dense form, in place.

    Raises:
        InputError: The model has no more layers than that.
        UnsupportedError: Its layers or its final norm cannot be told apart.
    """
    cut_behind(model, divided(model, count), count, "--self-draft")


def cut_behind(model: ir.Model, parts: Partition, count: int, where: str) -> ir.Node:
    """Cut all layers of ``parts`` but the first ``count`` out of a model in dense form, in place;
    returns the last norm.

    Raises:
        UnsupportedError: There is no norm between the last layer and the head.
    """
    hidden = parts.head.inputs[0]
    norm = None if hidden is None else hidden.producer()
    if norm is None or norm.op_type not in _NORMS:
        raise UnsupportedError(
            "there is no norm between the last layer and the head",
            where=where,
            hint="a draft of its own layers needs one",
        )
    if count < len(parts.blocks):  # the last block ends behind the norm
        norm.replace_input_with(0, parts.blocks[count - 1].result)
    remove_unused(model)
    return norm
