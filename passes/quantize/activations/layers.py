"""The layers that read activations of more bits: named by patterns of their tensors."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import onnx_ir as ir

from optc.errors import InputError
from optc.ir.linear import Linear
from optc.proof.reference.calibration import weights_of


def named_weights(layers: Sequence[Linear], patterns: Sequence[str], where: str) -> set[ir.Value]:
    """The weights of the layers that have a tensor like one of ``patterns``, and of those that read
    the same inputs; of all layers where there is no pattern.

    Raises:
        InputError: A pattern is that of no layer; ``where`` says whose pattern.
    """
    if not patterns:
        return {linear.initializer for linear in layers}
    left = patterns_of(layers, patterns)
    strange = [pattern for pattern in patterns if pattern not in left]
    if strange:
        names = sorted(name for linear in layers for name in weights_of(linear))
        raise InputError(
            f"activation_layers: no linear layer has a weight like {strange[0]!r}",
            where=where,
            hint=f"there are {', '.join(names[:4])}, …",
        )
    read = {linear.x for linear in layers if patterns_of([linear], patterns)}
    return {linear.initializer for linear in layers if linear.x in read}


def patterns_of(layers: Sequence[Linear], patterns: Sequence[str]) -> tuple[str, ...]:
    """Those that are of one of the layers' tensors."""
    names = [name for linear in layers for name in weights_of(linear)]
    return tuple(p for p in patterns if any(fnmatch.fnmatchcase(name, p) for name in names))
