"""Buffers that lie in checkpoints, and weights of one number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from optc.errors import InputError
from optc.importer.conversion.tensor import Tensor
from optc.importer.skeleton import Skeleton
from optc.ir.weights import LazyWeight


def with_stored_buffers(skeleton: Skeleton, checkpoint: Mapping[str, Tensor]) -> Skeleton:
    """The skeleton with the values of the buffers that ``checkpoint`` holds.

    Raises:
        InputError: One that the class does not initialize is not there, or has another shape.
    """
    values = dict(skeleton.buffers)
    for name in sorted(skeleton.stored & values.keys()):
        known, stored = values[name], checkpoint.get(name)
        if stored is None and not np.isnan(known).any():
            continue
        if stored is None:
            raise InputError(
                "the checkpoint lacks this buffer, which the model's class does not initialize",
                where=name,
                hint="is config.json the one of these weights?",
            )
        if stored.shape != known.shape:
            raise InputError(
                f"the tensor has shape {list(stored.shape)}, the model {list(known.shape)}",
                where=stored.where,
                hint="is config.json the one of these weights?",
            )
        rows = stored.read_rows(0, stored.shape[0] if stored.shape else 1)
        values[name] = rows.reshape(known.shape).astype(known.dtype)
    return replace(skeleton, buffers=values)


def make_scalars_constant(model: ir.Model) -> None:
    """Weights of one number become plain constants: arithmetic on them is done at once."""
    for name, value in model.graph.initializers.items():
        weight = value.const_value
        if isinstance(weight, LazyWeight) and weight.size == 1:
            value.const_value = ir.tensor(weight.numpy(), name=name)
