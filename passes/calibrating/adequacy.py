"""The adequacy of a text for calibration: tokens for each input, and loss on unseen windows.

GPTQ hands the rounding error of one input on to the others by H = E[x xᵀ] of a text. The windows of
the text make two halves. Rounding fitted to one half then loses more on the other half: by how much
is what more text would win. Little text for many inputs shows in it, and so do inputs that a text
hardly reaches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import onnx_ir as ir

from optc.passes.calibrating.experts.counts import expert_facts, expert_warnings
from optc.passes.numerics.gptq.factor import Float64, factor_of
from optc.proof.reference.observers import BlockValues
from optc.proof.reference.partition import Block
from optc.proof.reference.streams.floats import as_float32
from optc.proof.reference.submodel import Array

#: Inputs of a layer that are looked at. Of more, every n-th is, over every n-th token, so that
#: there are as many tokens for each input.
_INPUTS = 512
#: Loss on unseen windows over that on the windows of the fit from which on, for the median layer,
#: the text is called too short. On the example model it is 1.09 with 64 windows of 512 tokens, and
#: 1.53 with 16.
MOST_UNSEEN = 1.5
#: Tokens for each input under which second moments have no full rank by far.
LEAST_TOKENS = 2


class HalfSums:
    """Second moments of a layer's inputs over the even and over the odd windows of a text."""

    def __init__(self) -> None:
        self.tokens = self.width = 0
        self._sums: list[Float64 | None] = [None, None]

    def add(self, values: Array, first: int) -> None:
        """Take inputs [w, S, K], float32 or bfloat16, of windows ``first``, ``first + 1``, …"""
        self.width = values.shape[-1]
        self.tokens += values.size // self.width
        step = -(-self.width // _INPUTS)
        for window, kept in enumerate(values[:, ::step, ::step], start=first):
            rows: Array = as_float32(kept)
            known, product = self._sums[window % 2], rows.T @ rows
            self._sums[window % 2] = product + (0.0 if known is None else known)

    def unseen(self) -> float | None:
        """Expected loss of GPTQ's rounding, fitted to one half, on the other half over that on its
        own: the geometric mean of both ways; None if there is but one half.

        After rounding with errors e, one for each input, the weights are off by e S, S being the
        shares of `Factor`; of independent e of one size, the loss is the trace of S H Sᵀ.
        """
        even, odd = self._sums
        if even is None or odd is None:
            return None
        ratios = (_loss(one, other) / _loss(one, one) for one, other in ((even, odd), (odd, even)))
        return math.sqrt(math.prod(ratios))


def _loss(fitted: Float64, seen: Float64) -> float:
    """Trace of S H Sᵀ, S of the moments ``fitted``, H ``seen``; the least where nothing is seen."""
    factor = factor_of(np.asarray(fitted, np.float64), 0)
    ordered = np.asarray(seen, np.float64)[np.ix_(factor.order, factor.order)]
    shares = factor.shares.astype(np.float64)
    return float(np.sum((shares @ ordered) * shares)) or np.finfo(np.float64).tiny


class Adequacy:
    """Collects what there was of each layer's input.

    Args:
        moments: Whether second moments are used, so that their loss on unseen windows matters.
    """

    def __init__(self, *, moments: bool) -> None:
        self._moments = moments
        self._tokens: dict[str, tuple[int, int]] = {}
        self._unseen: dict[str, float] = {}
        self._experts: dict[str, list[int]] = {}

    def add(self, name: str, sums: HalfSums) -> None:
        """Take the sums of all windows of one input, which layer ``name`` reads."""
        self._tokens[name] = sums.tokens, sums.width
        if self._moments and (unseen := sums.unseen()) is not None:
            self._unseen[name] = unseen

    def add_experts(self, name: str, counts: Iterable[int]) -> None:
        """Take the tokens that each expert of a layer got; ``name`` is its first weight's."""
        self._experts[name] = [int(count) for count in counts]

    def state(self) -> dict[str, Any]:
        """The collected values, as JSON."""
        return {"tokens": self._tokens, "unseen": self._unseen, "experts": self._experts}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take what `state` gave."""
        self._tokens = {name: (tokens, width) for name, (tokens, width) in state["tokens"].items()}
        self._unseen = dict(state["unseen"])
        self._experts = dict(state["experts"])

    def facts(self) -> dict[str, Any]:
        """Figures of the inputs that have the least, by the weight that reads them."""
        facts: dict[str, Any] = expert_facts(self._experts)
        if self._tokens:
            name = min(self._tokens, key=self._per_input)
            facts["least_tokens_per_input"] = {
                "weight": name,
                "tokens": self._tokens[name][0],
                "inputs": self._tokens[name][1],
                "tokens_per_input": round(self._per_input(name), 2),
            }
        if self._unseen:
            worst = max(self._unseen, key=lambda one: self._unseen[one])
            facts["unseen_loss"] = {
                "median": round(median(self._unseen.values()), 4),
                "largest": round(self._unseen[worst], 4),
                "weight": worst,
            }
        return facts

    def warnings(self) -> list[str]:
        """Why the text was not enough, one sentence each."""
        found = expert_warnings(self._experts)
        few = [name for name in self._tokens if self._per_input(name) < LEAST_TOKENS]
        if self._moments and few:
            name = min(few, key=self._per_input)
            tokens, width = self._tokens[name]
            others = f", and so for {len(few) - 1} others" if len(few) > 1 else ""
            found.append(
                f"the calibration text is short: {tokens} tokens for the {width} inputs of {name}"
                f"{others}; give more windows"
            )
        if self._unseen and (usual := median(self._unseen.values())) > MOST_UNSEEN:
            found.append(
                f"the calibration text is short: rounding by half of its windows loses "
                f"{usual:.2f} times as much on the other half, in the median layer; "
                "more windows would help"
            )
        return found

    def _per_input(self, name: str) -> float:
        tokens, width = self._tokens[name]
        return tokens / width


class AdequacyObserver:
    """Shows `Adequacy` the inputs of layers while the reference runs.

    Args:
        readers: Names of the weights that read each value.
        adequacy: Takes the sums, after each block.
    """

    def __init__(self, readers: Mapping[ir.Value, Iterable[str]], adequacy: Adequacy) -> None:
        self._left = {value: next(iter(names)) for value, names in readers.items()}
        self._adequacy = adequacy
        self._sums: dict[ir.Value, HalfSums] = {}

    def watched(self, block: Block) -> Sequence[ir.Value]:
        """Those of the values that the block reads or makes and that no block before it had."""
        made = [block.source, *(value for node in block.nodes for value in node.outputs)]
        return [value for value in made if value in self._left]

    def on_values(self, seen: BlockValues) -> None:
        """Add a chunk of windows."""
        for value, array in seen.values.items():
            self._sums.setdefault(value, HalfSums()).add(array, seen.windows.start)

    def rewrite(self, block: Block) -> Mapping[ir.Value, Array]:
        """Give the block's sums away; nothing changes."""
        for value, sums in self._sums.items():
            self._adequacy.add(self._left.pop(value), sums)
        self._sums.clear()
        return {}
