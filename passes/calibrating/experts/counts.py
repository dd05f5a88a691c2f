"""The tokens of a text that each expert gets, counted while the reference runs over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.ir.experts import ExpertLinear
from optc.proof.reference.observers import BlockValues, Watcher
from optc.proof.reference.partition import Block

Counts = npt.NDArray[np.int64]

#: Share of an even share of the tokens under which an expert is hardly seen.
HARDLY = 0.1
#: Experts that a warning names.
_NAMED = 4


class ExpertCounter(Watcher):
    """Counts the tokens of the experts of each layer.

    Args:
        experts: Matmuls by experts; those that read the same choice are counted once.
    """

    def __init__(self, experts: Iterable[ExpertLinear]) -> None:
        self._sizes = {one.experts: one.num_experts for one in experts}
        self.counts: dict[ir.Value, Counts] = {}

    def watched(self, block: Block) -> Sequence[ir.Value]:
        """The choices that the block makes."""
        made = (value for node in block.nodes for value in node.outputs)
        return [value for value in made if value in self._sizes]

    def on_values(self, seen: BlockValues) -> None:
        """Count a chunk of windows."""
        for value, chosen in seen.values.items():
            if value in self._sizes:
                found = np.bincount(chosen.ravel(), minlength=self._sizes[value])
                self.counts[value] = found + self.counts.get(value, 0)


def expert_facts(counts: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The expert with the least tokens, and how many are hardly seen.

    Args:
        counts: Tokens by expert, by the name of the layer's first weight.
    """
    if not counts:
        return {}
    name = min(counts, key=lambda one: min(counts[one]))
    return {
        "least_tokens_of_expert": {
            "weight": name,
            "expert": int(np.argmin(counts[name])),
            "tokens": int(min(counts[name])),
        },
        "experts": sum(len(one) for one in counts.values()),
        "experts_hardly_seen": len(hardly_seen(counts)),
    }


def expert_warnings(counts: Mapping[str, Sequence[int]]) -> list[str]:
    """A warning of experts that are hardly seen, in one sentence; empty if there are none."""
    found = hardly_seen(counts)
    if not found:
        return []
    named = "; ".join(
        f"expert {expert} of {name} gets {tokens} tokens" for name, expert, tokens in found[:_NAMED]
    )
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return [
        f"the calibration text hardly reaches {len(found)} of "
        f"{sum(len(one) for one in counts.values())} experts: {named}{more}; give more windows or "
        "text of other kinds"
    ]


def hardly_seen(counts: Mapping[str, Sequence[int]]) -> list[tuple[str, int, int]]:
    """Weight, expert and tokens of the experts that get less than a tenth of an even share, those
    with the least first."""
    found = [
        (name, expert, int(tokens))
        for name, of_layer in counts.items()
        for expert, tokens in enumerate(of_layer)
        if tokens < HARDLY * sum(of_layer) / len(of_layer)
    ]
    return sorted(found, key=lambda one: one[2])
