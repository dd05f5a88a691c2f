"""Seconds of a compile, stage by stage: work by counts over the machine's paces.

What cannot be counted is a constant: tracing and exporting, and compiling kernels. All figures hold
where nothing else runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from optc.driver.predictions.paces import Paces
from optc.ir.experts import find_expert_linears
from optc.ir.linear import find_linears
from optc.pipeline.work import Work
from optc.reference.text import WINDOW_TOKENS, windows_for

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.pipeline.base import Pass

#: Starting PyTorch and transformers; tracing and exporting a layer.
_IMPORT_S, _LAYER_S = 7.0, 0.55
#: Rewriting the graph, for each node of the dense form.
_NODE_S = 0.002
#: Starting the compiler, and compiling the kernels of an engine, by one thread.
_COMPILER_S, _KERNEL_S = 4.0, 1.0
#: Windows and tokens of each of two texts whose domain is judged.
_FIT_WINDOWS, _FIT_TOKENS = 8, 256
#: What an engine's products take of the time of as many in float32.
_ENGINE_SHARE = 0.35
#: Runs of 512 tokens of the baseline and the engine, when speed is measured; and passes over the
#: float32 weights that decode.
_SPEED_ROUNDS, _DECODED = 6, 6 * 16
#: Bytes a second that the baseline reads.
_READ = 2.5e10


def compile_seconds(
    dense: ir.Model,
    passes: Sequence[Pass],
    paces: Paces,
    *,
    kernels: int,
    calibrated: bool,
) -> dict[str, float]:
    """Seconds by stage, as a report names them; ``gates`` are left out with ``--no-gates``.

    Args:
        dense: The model in dense form.
        passes: Of the recipe.
        paces: Of the machine.
        kernels: That are compiled for the engine.
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
        "build": max(_COMPILER_S + _KERNEL_S * kernels, paces.seconds(reading)),
    }
    count = windows_for(int(weights))
    if calibrated:
        texts = 2 * min(_FIT_WINDOWS, count // 2) * _FIT_TOKENS
        found["calibration text"] = paces.seconds(Work(float32=texts * weights))
    scored = count * WINDOW_TOKENS * weights * (1 + _ENGINE_SHARE)
    timed = _SPEED_ROUNDS * WINDOW_TOKENS * weights * (1 + _ENGINE_SHARE)
    decoded = _DECODED * 4 * weights * (1 + _ENGINE_SHARE) / _READ
    found["gates"] = paces.seconds(Work(float32=scored + timed)) + decoded
    return found
