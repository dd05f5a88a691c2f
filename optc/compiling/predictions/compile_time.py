"""Roughly how long a compile takes, by rates that were measured.

What a compile computes is not counted: each stage takes some seconds and so many more for each
weight, and a pass that runs the model over a text takes so many for each token of it. Of models of
10 million to 7 billion weights most compiles took half to twice as long as this says (ADR 0160).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optc.ir.experts import find_expert_linears
from optc.ir.linear import find_linears
from optc.ir.pipeline.phase import Phase
from optc.ir.pipeline.pipeline import Pipeline
from optc.system.hardware.target import usable_threads

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.ir.pipeline.base import Pass

#: The threads of the machines that were measured: parts that run on all threads take as much less
#: time as there are more.
_THREADS = 2
#: Seconds, and more of them for each weight: of importing; of packing; of all gates.
_IMPORT_S, _IMPORT_RATE = 8.5, 2.5e-9
_PASSES_S = 0.4
_COMPILER_S, _PACK_RATE = 4.0, 2.5e-8
_GATES_S, _GATES_RATE = 18.0, 1.1e-7
#: Seconds of two runs over a text side by side, for each token, and for each of the weights that
#: multiply it.
_TOKEN_S, _PRODUCT_RATE = 8.2e-4, 8.6e-12
#: How many times as long other passes take for a token of theirs, by phase.
_OF_PHASE = {
    Phase.STRUCTURE: 1.0,
    Phase.SPARSITY: 1.6,
    Phase.BASIS: 0.5,
    Phase.STATISTICS: 0.5,
    Phase.FORMATS: 3.0,
}


def compile_seconds(dense: ir.Model, passes: Sequence[Pass], kernel_s: float) -> dict[str, float]:
    """Seconds by stage, as a report names them; ``gates`` are left out with ``--no-gates``.

    Args:
        dense: The model in dense form.
        passes: Of the recipe.
        kernel_s: Seconds of one thread in which the engine's kernels are compiled.
    """
    linears, experts = find_linears(dense), find_expert_linears(dense.graph)
    plain = sum(one.weight.rows_shape[0] * one.weight.rows_shape[1] for one in linears)
    stored = float(plain + sum(one.weights for one in experts))
    multiplied = float(plain + sum(one.weights_of_a_row for one in experts))
    token_s = _TOKEN_S + _PRODUCT_RATE * multiplied
    costs = zip(passes, Pipeline(tuple(passes)).costs(dense), strict=True)
    tokens = sum(_OF_PHASE.get(one.phase, 1.0) * found.text_tokens for one, found in costs)
    shorter = _THREADS / usable_threads()
    return {
        "import": _IMPORT_S + _IMPORT_RATE * stored,
        "passes": _PASSES_S + shorter * tokens * token_s,
        "build": _COMPILER_S + max(kernel_s, shorter * _PACK_RATE * stored),
        "gates": _GATES_S + shorter * _GATES_RATE * multiplied,
    }
