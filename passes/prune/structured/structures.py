"""`PruneOnText`, `PruneStructures`: what passes that take out whole structures have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from optc.errors import InputError
from optc.ir.experts import refuse_experts
from optc.ir.linear import find_linears
from optc.ir.pipeline.base import ALONE, Pass, PassContext, PassCosts, PassReport
from optc.ir.pipeline.phase import Effect, Phase
from optc.passes.calibrating.predictions.text_shape import TextShape
from optc.passes.calibrating.reads_text import ReadsText
from optc.passes.prune.structured.channels import NEURONS, Channels, find_channels
from optc.passes.prune.structured.check import check_structure
from optc.passes.prune.structured.decisions import Decisions, Ledger
from optc.passes.prune.structured.refit import Cut, RefitStages
from optc.passes.prune.structured.sizes import Sizes
from optc.passes.prune.structured.target import Target
from optc.proof.reference.calibration import calibration_of
from optc.runtime.executable.executable import Int32
from optc.system.hardware.target import usable_threads

#: Passes that take the model as these leave it: what they measure, merge or round would be another
#: model's.
LATER = (
    *("trained-weights", "prune-weights", "rotate", "calibrate", "smooth", "balance-keys"),
    *("prune-to-budget", "allocate-bits", "propagate-errors"),
    *("fuse-qkv", "fuse-gate-up", "fuse-residual-norm", "fuse-rotary", "fuse-norm-quantize"),
    *("kv-cache", "quantize-weights", "quantize-static", "cast-weights"),
)


@dataclass(frozen=True)
class PruneOnText(ReadsText):
    """Chooses on a text what goes, fits what is left, and cuts the graph.

    Attributes:
        refit: Fit weights anew for what was taken out.
        measured_windows: Of the windows, how many KL is measured on.
    """

    phase: ClassVar[Phase] = Phase.STRUCTURE
    knows_experts: ClassVar[bool] = False
    effects: ClassVar[Effect] = Effect.READS_TEXT | Effect.REMOVES_WEIGHTS
    before: ClassVar[tuple[str, ...]] = LATER

    windows: int = 64
    refit: bool = True
    measured_windows: int = 4

    def __post_init__(self) -> None:
        """Refuse a measurement on nothing.

        Raises:
            InputError: There are no windows to measure on.
        """
        if self.measured_windows < 1:
            raise InputError("measured_windows must be at least 1", where=f"pass {self.name}")

    def costs(self, model: ir.Model, context: PassContext = ALONE) -> PassCosts:
        """Both streams, one stage, and the sums over one layer's inputs; fitted weights stay."""
        from optc.passes.calibrating.predictions.memory import left_rows
        from optc.passes.calibrating.working_bytes import propagating
        from optc.proof.reference.streams.choice import dtype_of, products_here
        from optc.proof.reference.streams.products import FLOAT32

        wide = dtype_of(FLOAT32).itemsize
        values = dtype_of(products_here()).itemsize
        working = max(propagating(model, self.shape, values, wide), self._choosing_bytes(model))
        return self.text_costs(working, left_rows(model, wide))

    def _choosing_bytes(self, model: ir.Model) -> int:
        """Memory that it takes to choose what goes; 0 where that is little."""
        return 0

    @property
    def _measured_shape(self) -> TextShape:
        """The text that KL is measured on."""
        return TextShape(self.measured_windows, self.window_tokens)

    def requires(self, model: ir.Model) -> None:
        """As of passes that read a text; and no experts, whose sizes are in no target.

        Raises:
            UnsupportedError: The model has experts.
        """
        super().requires(model)
        refuse_experts(model, f"pass {self.name}")

    def ensures(self, model: ir.Model) -> None:
        """Heads, keys and values, and shapes are those of one model."""
        check_structure(model)

    def on_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Rewrite ``model`` in place.

        Raises:
            InputError: Nothing can be taken out, the target cannot be met, or the text or the
                tokenizer cannot be used.
        """
        from optc.proof.reference.streams.choice import products_here

        store, report = calibration_of(model), PassReport()
        ledger = Ledger(store, self.name)
        names = [linear.name for linear in find_linears(model)]
        if ledger.find(names) is None:
            tokens = self.tokens(model)
            specs = [one.spec() for one in context.later if self._counts_stored_bytes()]
            recall = self.recall(model, tokens, products_here(), *specs)
            report = recall.run(store, lambda: self._measure(model, tokens, context.later))
        found = ledger.find(names) or Decisions()
        counted = PassReport()
        self._apply(model, found, counted)
        if not counted.count:  # a part of the model, and all that goes is in other layers
            counted.add("nothing in these layers")
        report.count, report.details = counted.count, counted.details | report.details
        return report

    def without_text(self, model: ir.Model, context: PassContext) -> PassReport:
        """Take out as much, whatever it is."""
        report = PassReport()
        cuts = self._choose(model, None, context.later, report)
        found = Decisions({value.name or "": np.arange(cut.left) for value, cut in cuts.items()})
        self._apply(model, found, report)
        return report

    def _measure(self, model: ir.Model, tokens: Int32, later: Sequence[Pass]) -> PassReport:
        """Decide on the text, and keep that in the store."""
        from optc.proof.reference.streams.choice import products_here, run_products
        from optc.proof.reference.two_streams import run_two_streams  # brings ONNX Runtime

        report, threads = PassReport(), usable_threads()
        cuts = self._choose(model, tokens, later, report)
        ledger = Ledger(calibration_of(model), self.name)
        if not cuts:
            ledger.close()
            return report
        stages = RefitStages(cuts, ledger, report, int(tokens.size), self.refit)
        products = run_products((products_here(), products_here()), threads)
        run_two_streams(model, tokens, stages, products, threads)
        ledger.close()
        report.facts |= {
            "tokens": int(tokens.size),
            "products": products.original.name,
            "block_loss": [float(f"{one:.3g}") for one in stages.lost],
        }
        return report

    def _choose(
        self, model: ir.Model, tokens: Int32 | None, later: Sequence[Pass], report: PassReport
    ) -> dict[ir.Value, Cut]:
        """The cuts, by the initializers of the layers that lose columns.

        Args:
            model: It is not changed.
            tokens: Windows [W, S]; None where nothing may be measured.
            later: The passes behind this one.
            report: Gets what was found.
        """
        raise NotImplementedError  # pragma: no cover - abstract

    def _apply(self, model: ir.Model, found: Decisions, report: PassReport) -> None:
        """Cut the graph, and give it the weights that were fitted."""
        raise NotImplementedError  # pragma: no cover - abstract

    def _measured(self, tokens: Int32) -> Int32:
        """Some of the windows, evenly spaced."""
        count = min(self.measured_windows, len(tokens))
        chosen: Int32 = tokens[np.linspace(0, len(tokens) - 1, count).round().astype(int)]
        return chosen

    def _counts_stored_bytes(self) -> bool:
        """True if what goes depends on how later passes store weights."""
        return True

    def _neurons(self, model: ir.Model, report: PassReport) -> list[Channels]:
        """Those of MLPs that can be taken out.

        Raises:
            InputError: There are none.
        """
        found = find_channels(model, NEURONS, report)
        if not found:
            raise self._nothing("no neurons that can be taken out were found", report)
        return found

    def _nothing(self, what: str, report: PassReport) -> InputError:
        nearest = report.skipped[0] if report.skipped else "no candidate was found"
        return InputError(
            f"{what} (nearest miss: {nearest})",
            where=f"pass {self.name}",
            hint="leave the pass out",
        )


@dataclass(frozen=True)
class PruneStructures(PruneOnText):
    """Takes out as much as a target asks for.

    Attributes:
        target: What is left: ``0.75x`` of the weights that the pass may take out, ``9.5M
            parameters`` or ``20MB`` of the whole model, stored as later passes will, or
            ``40tok/s@50GB/s``: what a decode step of one sequence of 512 tokens may read.
    """

    target: str = "0.75x"

    def __post_init__(self) -> None:
        """Refuse what is no target.

        Raises:
            InputError: It is none, or there are no windows to measure on.
        """
        Target.read(self.target, f"pass {self.name}")
        super().__post_init__()

    def _counts_stored_bytes(self) -> bool:
        return Target.read(self.target, self.name).kind in ("bytes", "speed")

    def _most(self, sizes: Sizes) -> tuple[Target, Fraction]:
        """The target, and what may be left.

        Raises:
            InputError: There is no more than that.
        """
        target, whole = Target.read(self.target, f"pass {self.name}"), sizes.of({})
        most = target.most(whole)
        if (counted := target.counted(whole)) <= most:
            raise InputError(
                f"the model meets the target {self.target} already: it has {target.text(counted)}",
                where=f"pass {self.name}",
                hint="leave the pass out, or ask for less",
            )
        return target, most

    def _unmet(self, target: Target, most: Fraction, least: Fraction) -> InputError:
        return InputError(
            f"the target {self.target} ({target.text(most)}) cannot be met: the least that it can "
            f"leave is {target.text(least)}",
            where=f"pass {self.name}",
            hint="allow more, or put another pass that prunes beside it",
        )


def sizes_facts(
    target: Target,
    sizes: Sizes,
    shapes: Mapping[ir.Value, tuple[int, int]],
    removed: Mapping[ir.Node, int],
) -> dict[str, Any]:
    """The amounts of the model before and after, for the report."""
    before, after = sizes.of({}), sizes.of(shapes, removed)
    return {
        "parameters": [before.parameters, after.parameters],
        "weight_bytes": [before.weight_bits // 8, after.weight_bits // 8],
        "target": [target.text(target.counted(one)) for one in (before, after)],
    }
