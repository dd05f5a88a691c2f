"""How much taking out structures is predicted to compute."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from optc.ir.linear import find_linears
from optc.passes.prune.structured.obs import rounds_of
from optc.passes.prune.structured.refit import Cut
from optc.passes.quantize.predictions.text_shape import TextShape
from optc.passes.quantize.predictions.work import observing, propagating, variants
from optc.pipeline.work import Work

#: Multiply-adds of the damped H, its inverse and roots, as multiples of K cubed.
_INVERSES = 3.0
#: Element-wise operations on each value of W and of the inverse when some columns go.
_REMOVAL_STEPS = 11
#: On each value that goes into a layer or comes out of it, half of which are compared.
_VALUE_STEPS = 7


def cutting(model: ir.Model, text: TextShape, cuts: Mapping[ir.Value, Cut], products: str) -> Work:
    """Two runs side by side, layers fitted to what is left, and choosing the columns that go.

    Args:
        model: Dense form.
        text: What is run through it.
        cuts: By initializers.
        products: How layers are multiplied.
    """
    work = propagating(
        model, text, None, (products, products), gptq=False, value_steps=_VALUE_STEPS
    )
    if not any(cut.left for cut in cuts.values()):
        # sub-layers go, and only what lies behind the first of them is fitted: half, by chance
        plain = observing(model, text, hessians=False) * 2
        work = (work + plain) * 0.5
    for linear in find_linears(model):
        cut = cuts.get(linear.initializer)
        if cut is not None and cut.left:
            rows, columns = linear.weight.rows_shape
            gone = columns * (cut.units - cut.left) // cut.units
            work += _removed(rows, columns, gone)
    return work


def measuring(model: ir.Model, text: TextShape, count: int) -> Work:
    """So many models without a part each, compared with the whole one."""
    body = float(sum(n * k for n, k in (one.weight.rows_shape for one in find_linears(model))))
    return variants(model, text, count, body)


def _removed(rows: int, columns: int, gone: int) -> Work:
    """Columns that go out of a weight [N, K], the others making up for them."""
    values = float(columns) * (rows + columns)
    return Work(
        float64=_INVERSES * float(columns) ** 3,
        steps=_REMOVAL_STEPS * rounds_of(columns, gone) * values,
    )
