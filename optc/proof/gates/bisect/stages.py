"""Divergence of the model after every pass from the model in dense form, and SQNR by layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from optc.proof.gates.bisect.model_run import run_model
from optc.proof.gates.bisect.step_feeds import step_feed
from optc.proof.gates.bisect.value_store import ValueStore, sqnr_db
from optc.proof.gates.divergence import RowDivergence
from optc.proof.reference.partition import Block, partition
from optc.proof.reference.submodel import Array
from optc.runtime.executable.executable import Float32, Int32

#: Divergences in nats that rounding in float32 explains.
LEAST_KL = 1e-6
#: A pass is to blame if it adds this share of what all passes add.
SHARE = 0.5
#: Stands for a divergence that is no finite number, so that differences are.
_INFINITE = 1e30


@dataclass(frozen=True)
class Stage:
    """The model after a pass.

    Attributes:
        name: Of the pass.
        model: In dense form or a ragged step.
    """

    name: str
    model: ir.Model


@dataclass(frozen=True)
class StageDivergences:
    """The divergences of the stages from the first.

    Attributes:
        kl: Mean KL of each, nats; 0 of the first.
        sqnr_by_layer: Of the last one's hidden state after every decoder layer, dB; None where a
            pass left no such value.
    """

    kl: tuple[float, ...]
    sqnr_by_layer: tuple[float | None, ...]

    def culprit(self) -> int | None:
        """The first stage with at least `SHARE` of all that passes add, else the one that adds
        most; None where nothing diverges."""
        added = np.diff(np.nan_to_num(self.kl, nan=_INFINITE, posinf=_INFINITE))
        if not len(added) or added.max() < LEAST_KL:
            return None
        return int((added >= SHARE * added.max()).argmax()) + 1


def compare_stages(
    stages: Sequence[Stage],
    windows: Int32,
    folder: Path,
    threads: int,
    progress: Callable[[int, int], None],
) -> StageDivergences:
    """Run all stages over windows [W, S] of tokens.

    Args:
        stages: The first is the dense form before all other passes.
        windows: Token ids.
        folder: For values that are kept; what this writes is small.
        threads: Threads of ONNX Runtime.
        progress: Told after each stage.
    """
    first = stages[0].model
    layers = [_names_of(block) for block in partition(first).blocks]
    names = [name for layer in layers for name in layer]
    expected = ValueStore(folder)
    exact = _run(first, windows, names, expected.put, threads)
    progress(1, len(stages))
    kl, by_layer = [0.0], dict[str, float]()
    for index, stage in enumerate(stages[1:], start=2):
        last = index == len(stages)

        def compare(name: str, array: Array) -> None:
            by_layer[name] = sqnr_db(expected.get(name, by_row=True), array)

        found = _run(stage.model, windows, names if last else (), compare, threads)
        kl.append(mean_kl(exact, found))
        progress(index, len(stages))
    found_by_layer = (next((by_layer[n] for n in layer if n in by_layer), None) for layer in layers)
    return StageDivergences(tuple(kl), tuple(found_by_layer))


def _names_of(block: Block) -> list[str]:
    """The hidden state behind a layer; then what the norm reads that the last layer ends in, for
    norms are fused with rounding."""
    producer = block.result.producer()
    operands = [] if producer is None else [v for v in producer.inputs if v is not None]
    moving = [v for v in operands[:1] if v.producer() in block.nodes]
    return [str(value.name) for value in (block.result, *moving)]


def logits_of(model: ir.Model, windows: Int32, threads: int) -> Float32:
    """[W * S, V] logits of all tokens."""
    return _run(model, windows, (), lambda name, array: None, threads)


def _run(
    model: ir.Model,
    windows: Int32,
    names: Collection[str],
    take: Callable[[str, Array], None],
    threads: int,
) -> Float32:
    """The logits; values of these names, as far as there are any, go to ``take``."""
    logits = model.graph.outputs[0]
    results: list[Array] = []

    def receive(value: ir.Value, array: Array) -> None:
        if value is logits:
            results.append(array.reshape(-1, array.shape[-1]))
        else:
            take(str(value.name), array)

    made = [v for node in model.graph for v in node.outputs if v.name in names and v is not logits]
    run_model(model, step_feed(model, windows), {logits, *made}, receive, threads)
    return results[0]


def mean_kl(exact: Float32, found: Float32) -> float:
    """Mean KL(exact ‖ found) over rows of logits [R, V], in nats."""
    sums = RowDivergence(np.zeros(len(exact), np.int32))
    sums.add(exact, found, 0)
    return float(sums.result().kl.mean())
