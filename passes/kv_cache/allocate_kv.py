"""`allocate-kv`: which layers keep int8 KV where the others keep int4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from optc.errors import InputError
from optc.ir.linear import find_linears
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.calibrating.estimates import nearest_alike, runs_within
from optc.passes.calibrating.predictions.text_shape import TextShape
from optc.passes.calibrating.reads_text import ReadsText, some_windows
from optc.passes.calibrating.recall import KeptParts, name_of
from optc.passes.kv_cache.int4_losses import attentions_of, int4_losses
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.kv_cache.layer_pools import layer_of
from optc.proof.reference.calibration import calibration_of
from optc.runtime.executable.executable import Int32

#: Multiply-adds that measuring may take; in larger models some layers stand for their neighbours.
MOST_MACS = 4e12
#: Layers that are measured at once, after which their figures are kept.
_TOGETHER = 16


@dataclass(frozen=True)
class AllocateKV(ReadsText):
    """Chooses the layers that keep int8 keys and values, for the ``kv-cache`` that comes later.

    A few layers look up what stood long before (induction heads: Olsson et al., arXiv:2209.11895),
    and most of what int4 loses on copies is theirs. Each layer's loss is measured: the KL of the
    model with the keys and values of that layer alone in int4, over windows of which the second
    half repeats the first. The layers that lose most get int8, as many as ``int8_share`` allows.
    Nothing is chosen where ``int8_layers`` of ``kv-cache`` names layers, or no pools hold int4.

    Attributes:
        int8_share: Layers that keep int8, of those that would keep int4: from 0 to 1.
        measured_windows: Windows that KL is measured on.
    """

    name: ClassVar[str] = "allocate-kv"
    pays: ClassVar[str] = (
        "With int4 pools: two layers of SmolLM2-135M in int8 lost .035 nats a token of a copied "
        "text instead of .155 (ADR 0155)."
    )
    phase: ClassVar[Phase] = Phase.FORMATS
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.KEEPS_PARAMETERS
    before: ClassVar[tuple[str, ...]] = (
        *("allocate-kv", "kv-cache"),
        *("quantize-weights", "quantize-static", "cast-weights"),
    )

    int8_share: float = 0.14
    measured_windows: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no share.

        Raises:
            InputError: It is none, or there are no windows.
        """
        where = f"pass {self.name}"
        if not 0 <= self.int8_share <= 1:
            raise InputError(f"int8_share={self.int8_share:g} is not from 0 to 1", where=where)
        if self.measured_windows < 1:
            raise InputError("measured_windows must be at least one", where=where)

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """Variants of the model side by side."""
        from optc.passes.calibrating.predictions.memory import measuring

        together = min(_TOGETHER, len(attentions_of(model)))
        return self.text_costs(measuring(model, self._measured_shape, together))

    def on_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Choose layers for the ``kv-cache`` behind it.

        Raises:
            InputError: There is none, or the text or the tokenizer cannot be used.
            UnsupportedError: Heads have a width that int4 pools do not take.
        """
        layers = self._free(model, context.later)
        if not self._most(layers):
            return _settled([], layers)
        tokens = twice(some_windows(self.tokens(model), self.measured_windows))
        recall = self.recall(model, tokens, f"layers={layers}")
        parts = recall.parts()

        def measure() -> PassReport:
            losses, measured = _rate(model, tokens, layers, parts)
            order = sorted(range(len(layers)), key=lambda i: losses[i], reverse=True)
            chosen = sorted(layers[i] for i in order[: self._most(layers)])
            report = _settled(chosen, layers)
            report.facts["layers"] = [
                _row(layer, loss, chosen, measured)
                for layer, loss in zip(layers, losses, strict=True)
            ]
            return report

        return recall.run(calibration_of(model), measure)

    def without_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Choose as many layers, the first ones."""
        layers = self._free(model, context.later)
        return _settled(layers[: self._most(layers)], layers)

    def _free(self, model: ir.Model, later: Sequence[Pass]) -> list[int]:
        """Numbers of the layers that would keep int4.

        Raises:
            InputError: No later pass makes pools.
            UnsupportedError: Heads have a width that int4 pools do not take.
        """
        cache = next((one for one in later if isinstance(one, KVCache)), None)
        if cache is None:
            raise InputError(
                "no pass behind it makes KV pools",
                where=f"pass {self.name}",
                hint="put it before kv-cache, or leave it out",
            )
        if cache.int8_layers:
            return []
        nodes = attentions_of(model)
        free = [at for at, node in enumerate(nodes) if cache.kept_of(node, at).dtype == "int4"]
        for at in free:
            layer_of(nodes[at], 0, "int4")  # refuses widths before anything is measured
        return free

    def _most(self, layers: Sequence[int]) -> int:
        return int(self.int8_share * len(layers))

    @property
    def _measured_shape(self) -> TextShape:
        return TextShape(min(self.measured_windows, self.windows), self.window_tokens)


def twice(windows: Int32) -> Int32:
    """Windows [W, S] of which the second half is the first."""
    half = windows[:, : windows.shape[1] // 2]
    return np.concatenate([half, half], axis=1)


def _rate(
    model: ir.Model, tokens: Int32, layers: Sequence[int], parts: KeptParts
) -> tuple[list[float], set[int]]:
    """The loss of each layer, and the numbers of those that were measured."""
    macs = tokens.size * _weights(model)
    costs = [macs * (1 - i / len(layers)) for i in range(len(layers))]
    roles = ["kv"] * len(layers)
    places, _ = runs_within(roles, costs, 1, MOST_MACS)
    found: list[float] = []
    for start in range(0, len(places), _TOGETHER):
        some = [layers[place] for place in places[start : start + _TOGETHER]]
        measure = partial(int4_losses, model, tokens, some)
        found += parts.value(f"kv-{name_of([some])}", measure)
    known = dict(zip(places, found, strict=True))
    losses = [
        known[i if i in known else nearest_alike(i, roles, places)] for i in range(len(layers))
    ]
    return losses, {layers[place] for place in places}


def _settled(chosen: Sequence[int], layers: Sequence[int]) -> PassReport:
    report = PassReport()
    if chosen:
        report.settled = {f"{KVCache.name}.int8_layers": tuple(chosen)}
    if layers:
        report.add("int8", len(chosen))
        report.add("int4", len(layers) - len(chosen))
    else:
        report.add("given")
    return report


def _row(layer: int, loss: float, chosen: Sequence[int], measured: set[int]) -> dict[str, Any]:
    dtype = "int8" if layer in chosen else "int4"
    return {"layer": layer, "dtype": dtype, "kl": loss, "measured": layer in measured}


def _weights(model: ir.Model) -> int:
    return sum(int(np.prod(one.weight.rows_shape)) for one in find_linears(model))
