"""The shapes an engine is built for: decode, verification of drafts and prefill, in one engine.

Weights are shared by the profiles; each costs some seconds of building and some megabytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from optc.backend import BuildOptions
from optc.backends.tensorrt.build_job import Profile, Shapes
from optc.backends.tensorrt.limits import PREFILL_LOGITS, VERIFY_ROWS, Limits
from optc.errors import UnsupportedError


def limits_of(options: BuildOptions) -> tuple[Limits, ...]:
    """The profiles of an engine, in their order in it."""
    rows = min(options.max_rows, options.max_context)
    verify = min(VERIFY_ROWS, rows)
    logits = options.max_logit_rows
    return (
        Limits("decode", options.max_sequences, 1, 1),
        Limits("verify", options.max_sequences, verify, min(verify, logits)),
        Limits("prefill", 1, rows, min(PREFILL_LOGITS, rows, logits)),
    )


def profiles_for(inputs: Iterable[ir.Value], limits: Iterable[Limits]) -> tuple[Profile, ...]:
    """Shapes of every input for each profile.

    Raises:
        UnsupportedError: An input has a dynamic dimension other than B, S and R.
    """
    values = list(inputs)
    return tuple(
        Profile(limit.name, {str(value.name): _shapes(value, limit) for value in values})
        for limit in limits
    )


def _shapes(value: ir.Value, limit: Limits) -> Shapes:
    largest = {"B": limit.batch, "S": limit.rows, "R": limit.logits}
    likeliest = {"B": max(1, limit.batch // 8), "S": max(1, limit.rows // 2), "R": 1}
    if value.shape is None:
        raise UnsupportedError(f"the input {value.name} has no shape", where="tensorrt backend")
    shapes = []
    for sizes in (dict.fromkeys("BSR", 1), likeliest, largest):
        dims = []
        for dim in value.shape:
            size = dim if isinstance(dim, int) else sizes.get(str(dim))
            if size is None:
                raise UnsupportedError(
                    f"the input {value.name} has the dynamic dimension {dim}",
                    where="tensorrt backend",
                )
            dims.append(size)
        shapes.append(tuple(dims))
    least, middle, most = shapes
    return least, middle, most
