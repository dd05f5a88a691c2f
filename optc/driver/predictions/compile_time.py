"""Seconds of a compile, stage by stage: work by counts over the machine's paces.

What cannot be counted is a constant: tracing and exporting, and compiling kernels. All figures hold
where nothing else runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from optc.driver.predictions.paces import Paces
from optc.ir.experts import find_expert_linears
from optc.ir.linear import find_linears, head_of
from optc.pipeline.work import Work
from optc.reference.element_steps import OF_COMPARED_LOGIT, element_steps
from optc.reference.text import WINDOW_TOKENS, windows_for

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.pipeline.base import Pass

#: Starting PyTorch and transformers; tracing and exporting a layer.
_IMPORT_S, _LAYER_S = 7.0, 0.55
#: Rewriting the graph, for each node of the dense form.
_NODE_S = 0.002
#: Starting the compiler, and linking.
_COMPILER_S = 4.0
#: Windows and tokens of each of two texts whose domain is judged.
_FIT_WINDOWS, _FIT_TOKENS = 8, 256
#: What an engine's products take of the time of as many in float32.
_ENGINE_SHARE = 0.35
#: Runs of 512 tokens of the baseline and the engine, when speed is measured; and passes over the
#: float32 weights that decode.
_SPEED_ROUNDS, _DECODED = 4, 4 * 16
#: Bytes a second that the baseline reads.
_READ = 2.5e10


def compile_seconds(
    dense: ir.Model,
    passes: Sequence[Pass],
    paces: Paces,
    *,
    kernel_s: float,
    calibrated: bool,
) -> dict[str, float]:
    """Seconds by stage, as a report names them; ``gates`` are left out with ``--no-gates``.

    Args:
        dense: The model in dense form.
        passes: Of the recipe.
        paces: Of the machine.
        kernel_s: Seconds of one thread in which the engine's kernels are compiled.
        calibrated: Whether a text is judged.
    """
    nodes = len(list(dense.graph))
    linears = find_linears(dense)
    weights = float(sum(one.weight.rows_shape[0] * one.weight.rows_shape[1] for one in linears))
    weights += sum(one.weights_of_a_row for one in find_expert_linears(dense.graph))
    layers = sum(node.op_type == "Attention" for node in dense.graph)
    running = sum(
        (one.work(dense, passes[at + 1 :]) for at, one in enumerate(passes)), start=Work()
    )
    reading = sum(
        (one.reading_work(dense, passes[:at]) for at, one in enumerate(passes)), start=Work()
    )
    found = {
        "import": _IMPORT_S + _LAYER_S * layers,
        "passes": _NODE_S * nodes + paces.seconds(running),
        "build": max(_COMPILER_S + kernel_s, paces.seconds(reading)),
    }
    count = windows_for(int(weights))
    if calibrated:
        texts = 2 * min(_FIT_WINDOWS, count // 2) * _FIT_TOKENS
        elements = element_steps(dense.graph, _FIT_TOKENS)
        found["calibration text"] = paces.seconds(
            Work(float32=texts * weights, steps=texts * elements)
        )
    tokens = (count + _SPEED_ROUNDS) * WINDOW_TOKENS
    both = tokens * (1 + _ENGINE_SHARE)
    head = head_of(dense)
    compared = 0 if head is None else OF_COMPARED_LOGIT * head.weight.rows_shape[0]
    steps = both * element_steps(dense.graph, WINDOW_TOKENS) + tokens * compared
    decoded = _DECODED * 4 * weights * (1 + _ENGINE_SHARE) / _READ
    found["gates"] = paces.seconds(Work(float32=both * weights, steps=steps)) + decoded
    return found


def usual_layer(dense: ir.Model) -> tuple[int, int]:
    """N and K of those linear layers, the head apart, that have most of the weights together."""
    head = head_of(dense)
    weights: Counter[tuple[int, int]] = Counter()
    for one in find_linears(dense):
        if head is None or one.initializer is not head.initializer:
            rows, inputs = one.weight.rows_shape
            weights[rows, inputs] += rows * inputs
    return max(weights, key=weights.__getitem__, default=(2048, 2048))
