"""Name the pass, the node and the tensor where divergence begins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from optc.proof.gates.bisect.node_errors import LocalRun, NodeError, first_broken, node_errors
from optc.proof.gates.bisect.restore import Cause, FloatWeights, find_cause, restored
from optc.proof.gates.bisect.stages import (
    Stage,
    StageDivergences,
    compare_stages,
    logits_of,
    mean_kl,
)
from optc.proof.gates.bisect.value_store import ValueStore
from optc.proof.reference.partition import partition
from optc.proof.reference.text import EvalWindows
from optc.runtime.executable.executable import Int32
from optc.system.progress import Progress, no_progress
from optc.system.scratch import Scratch

#: Most tokens that are run, and most bytes of their logits in float32.
MOST_ROWS = 256
LOGIT_BYTES = 64 << 20
FEWEST_ROWS = 32
#: Tokens of a window.
WINDOW = 64
_NODE_KEYS = (
    *("node", "operator", "block", "value", "sqnr_db", "peers_db", "outlier"),
    *("tensor", "cause", "restored_db", "kl_restored"),
)
#: Nodes that stand out beside the named one and are listed.
MOST_SUSPECTS = 5


@dataclass(frozen=True)
class Found:
    """The origin of a divergence.

    Attributes:
        stage: Index of the pass among the stages.
        broken: The node.
        cause: The tensor.
        block: Decoder layer of the node; None outside of all.
        kl_restored: KL of the pass's model with the weight restored; None of other causes.
        suspects: Other nodes that stand out, in graph order.
    """

    stage: int
    broken: NodeError
    cause: Cause
    block: int | None
    kl_restored: float | None
    suspects: tuple[NodeError, ...]


@dataclass(frozen=True)
class Bisection:
    """The result of `bisect`.

    Attributes:
        tokens: How many were run.
        names: Of the stages.
        divergences: Of the stages.
        found: None where no pass changes what is computed, or where nothing of what the pass
            changed can be compared.
    """

    tokens: int
    names: tuple[str, ...]
    divergences: StageDivergences
    found: Found | None

    def to_json(self) -> dict[str, Any]:
        """Keys as docs/cli.md lists them."""
        kl = [value if math.isfinite(value) else None for value in self.divergences.kl]
        passes = [{"name": n, "kl": value} for n, value in zip(self.names, kl, strict=True)]
        result: dict[str, Any] = {"tokens": self.tokens, "passes": passes}
        result["sqnr_by_layer"] = list(self.divergences.sqnr_by_layer)
        stage = self.divergences.culprit()
        result["pass"] = None if stage is None else self.names[stage]
        result["kl_before"] = None if stage is None else kl[stage - 1]
        result["kl_after"] = kl[-1] if stage is None else kl[stage]
        return result | self._node()

    def _node(self) -> dict[str, Any]:
        if self.found is None:
            return {**dict.fromkeys(_NODE_KEYS), "suspects": []}
        found, broken, cause = self.found, self.found.broken, self.found.cause
        values: tuple[Any, ...] = (
            *(cause.node, broken.operator, found.block, broken.value),
            *(broken.sqnr_db, broken.peers_db, broken.outlier),
            *(cause.tensor, cause.kind, cause.restored_db, found.kl_restored),
        )
        suspects = [
            {"node": s.node, "value": s.value, "sqnr_db": s.sqnr_db, "peers_db": s.peers_db}
            for s in found.suspects
        ]
        return {**dict(zip(_NODE_KEYS, values, strict=True)), "suspects": suspects}


def bisect(
    stages: Sequence[Stage],
    windows: EvalWindows,
    *,
    threads: int,
    progress: Progress = no_progress,
) -> Bisection:
    """Run the model after every pass over a few windows and find where it goes wrong.

    The pass is the first that adds at least half of what the worst one adds to the mean KL from
    the dense form. Within its model every node is given the exact values of the model before, and
    its outputs are compared by their signal-to-noise ratio with those of its peers: the same
    operator on the same weight of other layers. Of what stands out, weights are put back to float
    one at a time; the tensor is the one that repairs the value.

    Memory holds one node's weights or 256 MiB of them, in float32, and the values between them;
    values that are compared lie in temporary files.

    Args:
        stages: The dense form before all other passes, then the model after each of them.
        windows: Their first tokens are run.
        threads: Threads of ONNX Runtime.
        progress: Told after each stage.

    Raises:
        optc.errors.UnsupportedError: The dense form cannot be cut at its layers.
    """
    tokens = _some(windows.ids, stages[0].model)
    with Scratch("bisect") as folder:
        kept = Path(folder)
        divergences = compare_stages(
            stages, tokens, kept, threads, lambda done, total: progress("bisect", done, total)
        )
        stage = divergences.culprit()
        found = None if stage is None else _find(stages, stage, tokens, kept, threads)
    names = tuple(one.name for one in stages)
    return Bisection(int(tokens.size), names, divergences, found)


def _some(ids: Int32, dense: ir.Model) -> Int32:
    """The first tokens [W, S] of some windows."""
    head = partition(dense).head.inputs[1]
    tensor = None if head is None else head.const_value
    vocabulary = 1 if tensor is None else int(tensor.shape.numpy()[-1])
    rows = max(FEWEST_ROWS, min(MOST_ROWS, LOGIT_BYTES // (4 * vocabulary)))
    size = min(WINDOW, rows, ids.shape[1] - 1)
    return ids[: max(1, rows // size), :size]


def _find(
    stages: Sequence[Stage], stage: int, tokens: Int32, folder: Path, threads: int
) -> Found | None:
    before, after = stages[stage - 1].model, stages[stage].model
    values = folder / "values"
    values.mkdir()
    run = LocalRun(before, after, tokens, ValueStore(values), threads)
    errors = node_errors(run, after)
    broken = first_broken(errors)
    if broken is None:
        return None
    floats = FloatWeights(before)
    cause = find_cause(run, after, floats, broken)
    kl: float | None = None
    whole = restored(after, cause.output, floats) if cause.kind == "weight" else None
    if whole is not None:
        exact = logits_of(stages[0].model, tokens, threads)
        kl = mean_kl(exact, logits_of(whole, tokens, threads))
    suspects = [one for one in errors if one.outlier and one is not broken][:MOST_SUSPECTS]
    block = _blocks(stages[0].model, after).get(broken.value)
    return Found(stage, broken, cause, block, kl, tuple(suspects))


def _blocks(dense: ir.Model, model: ir.Model) -> Mapping[str, int]:
    """Decoder layer by name of a value; what passes have made belongs where its inputs do."""
    known = {
        str(value.name): index
        for index, block in enumerate(partition(dense).blocks)
        for node in block.nodes
        for value in node.outputs
    }
    found: dict[str, int] = {}
    for node in model.graph:
        inputs = [found[str(v.name)] for v in node.inputs if v is not None and str(v.name) in found]
        for value in node.outputs:
            name = str(value.name)
            if name in known:
                found[name] = known[name]
            elif inputs:
                found[name] = max(inputs)
    return found
