"""`calibrate`: the ranges of the linear layers' inputs, measured on a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from optc.ir.experts import ExpertLinear, find_expert_linears
from optc.ir.linear import Linear, find_linears
from optc.ir.pipeline.base import ALONE, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Effect
from optc.passes.calibrating.adequacy import Adequacy, AdequacyObserver
from optc.passes.calibrating.experts.counts import ExpertCounter
from optc.passes.calibrating.reads_text import ReadsText
from optc.passes.numerics.range_search import METHODS
from optc.passes.numerics.statistics import (
    CHANNEL_MEAN,
    CHANNEL_RANGE,
    EXPERT_TOKENS,
    INPUT_HESSIAN,
    INPUT_HISTOGRAM,
    INPUT_RANGE,
)
from optc.proof.reference.calibration import (
    CalibrationStore,
    calibration_of,
    find_statistics,
    weights_of,
)
from optc.proof.reference.observers import BlockObserver
from optc.runtime.executable.executable import Int32
from optc.system.hardware.target import usable_threads


@dataclass(frozen=True)
class Calibrate(ReadsText):
    """Runs the float32 model over a text and notes the largest magnitude of each layer's input.

    The graph stays as it is: the magnitudes go into the model's calibration store, where static
    quantization reads them, and GPTQ the Hessians. One layer after the other is run by ONNX
    Runtime, for all windows, so that memory stays bounded; Hessians beyond 256 MiB lie in a
    temporary file. Of mixtures of experts it counts the tokens that each expert gets, and names
    those that get hardly any.

    Attributes:
        hessians: Note E[x xᵀ] of each layer's input x, too.
        channels: Note the mean and the largest magnitude of each channel of x, too.
        ranges: What becomes of the magnitudes: ``max``, the largest; ``percentile``, what 99.99 %
            do not exceed; ``mse``, the range of the least squared error in int8; ``entropy``, the
            one of the least divergence (`optc.passes.numerics.range_search`).
    """

    name: ClassVar[str] = "calibrate"
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.KEEPS_PARAMETERS
    before: ClassVar[tuple[str, ...]] = ("quantize-weights", "quantize-static", "cast-weights")
    hessians: bool = False
    channels: bool = False
    ranges: str = "max"

    def __post_init__(self) -> None:
        """Refuse other ranges.

        Raises:
            InputError: ``ranges`` is none of the four.
        """
        self.check_option("ranges", tuple(METHODS))

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """One layer, the hidden states, and the Hessians of one layer's inputs; Hessians stay, if
        they are wanted."""
        from optc.passes.calibrating.predictions.memory import left_hessians
        from optc.passes.calibrating.working_bytes import observing

        working = observing(model, self.shape, hessians=self.hessians)
        return self.text_costs(working, left_hessians(model) if self.hessians else 0)

    def on_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Calibrate ``model``.

        Raises:
            InputError: The text or the tokenizer cannot be used.
        """
        tokens, store = self.tokens(model), calibration_of(model)
        recall = self.recall(model, tokens)
        return recall.run(store, lambda: self._measure(model, tokens, store))

    def _measure(self, model: ir.Model, tokens: Int32, store: CalibrationStore) -> PassReport:
        report = PassReport()
        linears = find_linears(model)
        adequacy = Adequacy(moments=self.hessians)
        ranges = self._observe(model, tokens, linears, store, adequacy)
        for linear in linears:
            if ranges[linear.x] == 0.0:
                report.skip(linear.matmul, "its input is zero on this text")
            else:
                note_input_range(store, linear, ranges[linear.x])
                report.add("linear layer")
        largest = max(linears, key=lambda linear: ranges[linear.x])
        report.facts = {
            "tokens": int(tokens.size),
            "largest_input": {"weight": largest.name, "magnitude": ranges[largest.x]},
            "statistics_sha256": store.digest(),
            **adequacy.facts(),
        }
        report.warnings = adequacy.warnings()
        return report

    def without_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Note 1 as the largest magnitude of every layer's input."""
        report = PassReport()
        for linear in find_linears(model):
            note_input_range(calibration_of(model), linear, 1.0)
            report.add("linear layer, not calibrated")
        return report

    def _observe(
        self,
        model: ir.Model,
        tokens: Int32,
        linears: Sequence[Linear],
        store: CalibrationStore,
        adequacy: Adequacy,
    ) -> dict[ir.Value, float]:
        """Run the model; the largest magnitudes of the layers' inputs. Hessians go into ``store``,
        once for all layers of one input."""
        from optc.proof.reference.activation_ranges import RangeObserver
        from optc.proof.reference.blockwise import observe  # brings ONNX Runtime
        from optc.proof.reference.channel_magnitudes import ChannelObserver
        from optc.proof.reference.histograms import HistogramObserver
        from optc.proof.reference.input_hessians import HessianObserver

        readers: dict[ir.Value, list[str]] = {}
        for linear in linears:
            readers.setdefault(linear.x, []).extend(weights_of(linear))
        ranges, histograms = RangeObserver(readers), HistogramObserver(readers)
        observers: list[BlockObserver] = [AdequacyObserver(readers, adequacy)]
        observers.append(ranges if self.ranges == "max" else histograms)
        if self.hessians:
            keep = HessianObserver(
                readers, lambda value, found: store.put(readers[value], INPUT_HESSIAN, found)
            )
            observers.append(keep)
        channels = ChannelObserver(readers if self.channels else ())
        experts = find_expert_linears(model.graph)
        counter = ExpertCounter(experts)
        observers += [channels, counter]
        observe(model, tokens, observers, usable_threads())
        _note_experts(experts, counter, store, adequacy)
        for value, seen in channels.found.items():
            store.put(readers[value], CHANNEL_MEAN, seen.mean)
            store.put(readers[value], CHANNEL_RANGE, seen.largest)
        if self.ranges == "max":
            return ranges.ranges
        for value, names in readers.items():
            one = histograms.histograms[value]
            store.put(names, INPUT_HISTOGRAM, np.array([*one.counts, one.limit]))
        find = METHODS[self.ranges]
        return {value: find(one) for value, one in histograms.histograms.items()}


def _note_experts(
    experts: Sequence[ExpertLinear],
    counter: ExpertCounter,
    store: CalibrationStore,
    adequacy: Adequacy,
) -> None:
    """Keep how many tokens each expert got, as a statistic of all weights of its layer."""
    for value, counts in counter.counts.items():
        readers = [one.linear for one in experts if one.experts is value]
        adequacy.add_experts(readers[0].name, counts)
        store.put([name for one in readers for name in weights_of(one)], EXPERT_TOKENS, counts)


def note_input_range(store: CalibrationStore, linear: Linear, magnitude: float) -> None:
    """Keep the largest magnitude of a layer's input, or a larger one that is known already."""
    known = input_range(store, linear) or 0.0
    store.put(weights_of(linear), INPUT_RANGE, np.array(max(known, magnitude)))


def input_range(store: CalibrationStore, linear: Linear) -> float | None:
    """The largest magnitude that a layer's input had; None if it is not calibrated."""
    found = find_statistics(store, linear, INPUT_RANGE)
    return max(float(array) for array in found) if found else None
