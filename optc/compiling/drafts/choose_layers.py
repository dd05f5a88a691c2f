"""The number of first layers that draft best for a whole model: measured agreement, predicted cost.

For some numbers of layers, the float32 model is cut there and asked for its likeliest next token at
every place of a few windows of text. Where it names the whole model's, a draft would be accepted
under greedy decoding. A draft step costs its share of the weights, since decoding reads them once
a step; the number that promises most tokens a second wins (Leviathan et al., 2023, section 3.3).
Of experts a step reads those that its rows are expected to choose, if all are equally likely.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from optc.compiling.drafts.layer_skip import keep_first_layers
from optc.ir.experts import EXPERT_MATMULS
from optc.ir.functions import DOMAIN, is_op, operand
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.partition import Partition, partition
from optc.runtime.executable.executable import Int32
from optc.runtime.metrics.step_workload import expected_experts

#: Windows of text and their tokens: agreement within about two hundredths.
WINDOWS, TOKENS = 6, 256
#: Most drafts in a row that are considered.
MOST_DRAFTS = 8
#: What verifying one more row costs, as a share of a step.
ROW_COST = 0.03
#: Less than this is within the error of the prediction.
LEAST_SPEEDUP = 1.05


@dataclass(frozen=True)
class Candidate:
    """Some first layers as a draft.

    Attributes:
        layers: How many.
        agreement: Share of places where they name the whole model's likeliest token.
        cost: Of a draft step, as a share of a plain step.
        drafts: Best number of drafts in a row.
        speedup: Predicted, against plain decoding.
    """

    layers: int
    agreement: float
    cost: float
    drafts: int
    speedup: float


@dataclass(frozen=True)
class LayerChoice:
    """The measured candidates, and the choice among them.

    Attributes:
        candidates: By number of layers.
        layers: The best ones; None if no number pays.
    """

    candidates: tuple[Candidate, ...]
    layers: int | None

    @property
    def warning(self) -> str:
        """Why there is no self-draft; empty if there is one."""
        if self.layers is not None:
            return ""
        best = max(self.candidates, key=lambda candidate: candidate.speedup)
        return (
            f"no self-draft: the first layers say too little of the whole model's next token; "
            f"the best, {best.layers}, agree in {best.agreement:.0%} of places "
            f"(predicted speed {best.speedup:.2f})"
        )

    def to_json(self) -> dict[str, Any]:
        """For the report."""
        return {"layers": self.layers, "candidates": [asdict(one) for one in self.candidates]}


def choose_layers(model: ir.Model, tokens: Int32, threads: int) -> LayerChoice:
    """Choose by windows of tokens [W, S].

    Args:
        model: Dense form; stays as it is.
        tokens: Text that the model may see.
        threads: Threads of ONNX Runtime.

    Raises:
        UnsupportedError: The layers cannot be told apart.
    """
    parts = partition(model)
    whole = likeliest(model, tokens, threads)
    verifying = verify_costs(parts)
    candidates = []
    for layers in layers_to_try(len(parts.blocks)):
        cut = model.clone()
        keep_first_layers(cut, layers)
        agreement = float(np.mean(likeliest(cut, tokens, threads) == whole))
        candidates.append(predict(layers, agreement, cost_of(parts, layers), verifying))
    best = max(candidates, key=lambda one: one.speedup, default=None)
    pays = best is not None and best.speedup >= LEAST_SPEEDUP
    return LayerChoice(tuple(candidates), best.layers if best is not None and pays else None)


def layers_to_try(count: int) -> list[int]:
    """Few layers one by one, then shares of all, at most half of them."""
    wanted = {1, 2, 3, count // 8, count // 6, count // 4, count // 3, count // 2}
    return sorted(layers for layers in wanted if 1 <= layers < count)


def likeliest(model: ir.Model, tokens: Int32, threads: int) -> Int32:
    """[W * S] the likeliest next token at each place of windows [W, S]."""
    reference = BlockwiseReference(model, threads)
    try:
        hidden = reference.hidden_states(tokens)
        best = np.full(len(hidden), -np.inf, np.float32)
        found = np.zeros(len(hidden), np.int32)
        for tile in reference.tiles():
            logits = reference.logits(hidden, tile)
            largest = logits.max(-1)
            better = largest > best
            found[better] = tile.start + logits.argmax(-1)[better]
            best = np.maximum(best, largest)
    finally:
        reference.close()
    return found


def cost_of(parts: Partition, layers: int) -> float:
    """Share of the weights that a step of the first layers and the head reads, of one row."""
    return _read(parts, layers, 1) / _read(parts, len(parts.blocks), 1)


def verify_costs(parts: Partition) -> list[float]:
    """The cost of a step that verifies 0 to `MOST_DRAFTS` drafts, as a share of one that verifies
    none: the weights it reads and `ROW_COST` a draft."""
    read = [_read(parts, len(parts.blocks), drafts + 1) for drafts in range(MOST_DRAFTS + 1)]
    return [one / read[0] + drafts * ROW_COST for drafts, one in enumerate(read)]


def predict(layers: int, agreement: float, cost: float, verifying: Sequence[float]) -> Candidate:
    """The best number of drafts in a row, and what it promises.

    Args:
        layers: How many draft.
        agreement: Share of places where they name the model's next token.
        cost: `cost_of`.
        verifying: `verify_costs`.
    """

    def speedup(drafts: int) -> float:
        tokens = sum(agreement**accepted for accepted in range(drafts + 1))
        return tokens / (verifying[drafts] + drafts * cost)

    drafts = max(range(1, MOST_DRAFTS + 1), key=speedup)
    return Candidate(layers, agreement, cost, drafts, speedup(drafts))


def _read(parts: Partition, layers: int, rows: int) -> float:
    """Weights that the first layers and the head read for so many rows."""
    nodes = [node for block in parts.blocks[:layers] for node in block.nodes]
    return sum(_elements(node.inputs) * _share(node, rows) for node in [*nodes, parts.head])


def _share(node: ir.Node, rows: int) -> float:
    """Of the constants of a node, those that are read for so many rows."""
    experts = operand(node, "experts") if is_op(node, *EXPERT_MATMULS, domain=DOMAIN) else None
    chosen = None if experts is None or experts.shape is None else experts.shape[-1]
    if not isinstance(chosen, int):
        return 1.0
    count = node.attributes.get_int("num_experts", 1)
    return expected_experts(rows, chosen, count) / count


def _elements(values: Iterable[ir.Value | None]) -> int:
    """Elements of the initializers among some values."""
    shapes = [v.shape for v in values if v is not None and v.is_initializer()]
    return sum(math.prod(shape.numpy()) for shape in shapes if shape is not None)
