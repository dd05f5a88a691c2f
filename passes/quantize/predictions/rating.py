"""Work of rating formats: each group of weights is rounded in each, and some are measured by KL."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from optc.passes.quantize.budget.groups import Group
from optc.passes.quantize.budget.sensitivity import ERROR_ROWS, MOST_MACS
from optc.passes.quantize.gptq.rows import TILE
from optc.passes.quantize.predictions.text_shape import TextShape
from optc.passes.quantize.predictions.work import gptq_rounding, rounding, variants
from optc.pipeline.work import Work


def rating(
    model: ir.Model,
    text: TextShape,
    groups: Sequence[Group],
    bits: Sequence[int],
    measured: int,
    *,
    gptq: bool,
) -> Work:
    """Rounding samples of all groups in all formats, and variants of the model that are compared.

    Args:
        model: Dense form.
        text: What variants are run over.
        groups: Of weights that have one format.
        bits: Of each format.
        measured: How many formats of a group become a variant.
        gptq: Whether GPTQ rounds.
    """
    weights = float(sum(group.weights for group in groups))
    work = sum((_rounding(groups, one, ERROR_ROWS, gptq=gptq) for one in bits), start=Work())
    work += Work(float64=len(bits) * _errors(groups))
    of_variant = text.tokens * weights / 2
    count = min(MOST_MACS / max(of_variant, 1.0), measured * len(groups))
    work += variants(model, text, count, weights)
    share = count / max(len(groups), 1)
    rounded = _rounding(groups, 3, None, gptq=gptq)  # while a variant waits for its weights
    return work + Work(float32=share * rounded.float32, alone=share * rounded.steps)


def _errors(groups: Sequence[Group]) -> float:
    """Multiply-adds of E H, for the loss tr(E H Eᵀ) of samples of all weights."""
    shapes = [shape for group in groups for shape in group.shapes()]
    return float(sum(min(rows, ERROR_ROWS) * columns**2 for rows, columns in shapes))


def _rounding(groups: Sequence[Group], bits: int, most: int | None, *, gptq: bool) -> Work:
    """Of at most so many rows of each weight."""
    work = Work()
    for rows, columns in (shape for group in groups for shape in group.shapes()):
        count = rows if most is None else min(rows, most)
        work += rounding(float(count * columns), bits)
        if gptq:
            work += gptq_rounding(count, columns, TILE)
    return work
