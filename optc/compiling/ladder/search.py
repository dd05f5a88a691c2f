"""The search for the first rung that holds, without trying all of them.

A trial takes minutes: weights are rounded, an engine is built and measured. What is known before
is what a recipe promises, the losses that its own gates allow. Those bounds order recipes by their
exactness better than they say how much a given model loses. So they decide which rung is tried
next and which ones need no trial; only a measurement decides that a rung holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from optc import registry
from optc.artifact.tasks.task import SPEED
from optc.compiling.ladder.losses import SCALE, losses_of
from optc.compiling.ladder.rungs import Rung

if TYPE_CHECKING:
    from optc.proof.gates.measure import GateResult

#: A recipe is clearly less exact than another if it promises losses this many times as large.
CLEARLY = 1.2
#: A rung that is expected to lose this many times what is allowed is not tried where another holds
#: and one was measured: bounds of recipes are those of the models that lose most, SmolLM2 loses 23
#: times less. Each rung that was measured says more of the model.
HOPELESS = 25.0
#: The same where many were measured.
AT_LEAST_HOPELESS = 4.0
#: The first rung is one that takes at most this many times the least time of a compile.
SOON = 1.5
#: No loss is taken for less, so that ratios stay finite.
_LEAST = 1e-9


@dataclass(frozen=True)
class Trial:
    """The result of trying a rung.

    Attributes:
        held: Whether all gates held over all windows.
        values: What was measured, by gate.
        failed: Names of the gates that failed.
        windows: How many windows were scored; 0 where nothing was measured.
        why: Why it fell, one sentence; empty where it held.
        seconds: That it took.
    """

    held: bool
    values: Mapping[str, float] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    windows: int = 0
    why: str = ""
    seconds: float = 0.0


def values_of(gates: Iterable[GateResult]) -> dict[str, float]:
    """The measured values by gate; of several engines those of the first."""
    values: dict[str, float] = {}
    for gate in gates:
        if gate.value is not None:
            values.setdefault(gate.name, gate.value)
    return values


@dataclass
class Search:
    """A search over rungs.

    Args:
        rungs: In order, the best one first.
        bounds: By gate; all of them are judged.

    Attributes:
        trials: By recipe, in the order in which they were made.
        skipped: Why a rung was not tried, by recipe.
    """

    rungs: Sequence[Rung]
    bounds: Mapping[str, float]
    trials: dict[str, Trial] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> Rung | None:
        """The first rung that was tried and held."""
        return next((r for r in self.rungs if r.recipe in self.trials and self._held(r)), None)

    def run(self, attempt: Callable[[Rung], Trial]) -> Rung | None:
        """Try rungs until none is left that may be better than the best; that one, or None."""
        while (rung := self.next()) is not None:
            self.trials[rung.recipe] = attempt(rung)
        return self.best

    def next(self) -> Rung | None:
        """The rung to try now: the first one that is expected to hold, else the one that is
        expected to come nearest; None at the end.

        The very first one is also compiled soon: what it loses tells more about the model than
        promises do, before a rung is tried whose calibration takes hours.
        """
        waiting = [rung for rung in self._before_best() if not self._settled(rung)]
        for rung in waiting:
            if reason := self._hopeless(rung):
                self.skipped[rung.recipe] = reason
        waiting = [rung for rung in waiting if rung.recipe not in self.skipped]
        excesses = {rung.recipe: self.excess(rung) for rung in waiting}
        promising = [rung for rung in waiting if excesses[rung.recipe] <= 1]
        if not self.trials:
            promising = _soon(promising)
        nearest = min(waiting, key=lambda rung: excesses[rung.recipe], default=None)
        return next(iter(promising), nearest)

    def excess(self, rung: Rung) -> float:
        """The expected loss over the allowed one, of the gate where that is largest; 0 where
        nothing is known."""
        allowed = losses_of(self.bounds)
        found = [
            expected / max(loss, _LEAST)
            for gate, loss in allowed.items()
            if (expected := self.expected(rung, gate)) is not None
        ]
        return max(found, default=0.0)

    def expected(self, rung: Rung, gate: str) -> float | None:
        """The loss of a gate that a rung is expected to have; None where nothing is known.

        It lies half way, in logarithms, between what the recipe promises and what follows in
        proportion from the measured rung whose promise is nearest.
        """
        promised = rung.promised.get(gate)
        if promised is None:
            return None
        promised = max(promised, _LEAST)
        measured = [
            (other.promised[gate], losses[gate])
            for other in self.rungs
            if gate in other.promised and gate in (losses := self._losses(other))
        ]
        if not measured:
            return promised
        own, loss = min(measured, key=lambda one: abs(math.log(max(one[0], _LEAST) / promised)))
        return promised * math.sqrt(max(loss, _LEAST) / max(own, _LEAST))

    def nearest(self) -> tuple[Rung, Trial] | None:
        """Of the rungs that were measured and fell, the one that came nearest to the bounds."""
        fell = [(r, t) for r in self.rungs if (t := self.trials.get(r.recipe)) and t.values]
        return min(fell, key=lambda one: self._measured_excess(one[1]), default=None)

    def _measured_excess(self, trial: Trial) -> float:
        allowed, lost = losses_of(self.bounds), losses_of(trial.values)
        ratios = [lost[g] / max(loss, _LEAST) for g, loss in allowed.items() if g in lost]
        return max(ratios, default=float(len(trial.failed)))

    def _before_best(self) -> Sequence[Rung]:
        best = self.best
        return self.rungs if best is None else self.rungs[: self.rungs.index(best)]

    def _settled(self, rung: Rung) -> bool:
        return rung.recipe in self.trials or rung.recipe in self.skipped

    def _held(self, rung: Rung) -> bool:
        return self.trials[rung.recipe].held

    def _losses(self, rung: Rung) -> Mapping[str, float]:
        trial = self.trials.get(rung.recipe)
        return {} if trial is None else losses_of(trial.values)

    def _hopeless(self, rung: Rung) -> str:
        """The reason why a rung needs no trial; empty if it does.

        Where a rung fell, what is clearly less exact would fall too. What is only expected to fall
        is tried all the same until some rung has held: the most exact one always is.
        """
        for other in self.rungs:
            trial = self.trials.get(other.recipe)
            failed = () if trial is None else trial.failed
            gates = [g for g in failed if registry.measures()[g].source != SPEED]
            if any(_less_exact(rung, other, gate) for gate in gates):
                return f"promises less than {other.recipe}, which fell"
        excess = self.excess(rung)
        if self.best is not None and excess >= self._hopeless_excess():
            return f"is expected to lose {excess:.0f} times what is allowed"
        return ""

    def _hopeless_excess(self) -> float:
        measured = sum(bool(trial.values) for trial in self.trials.values())
        return max(HOPELESS ** (1 / max(measured, 1)), AT_LEAST_HOPELESS)


def _soon(rungs: Sequence[Rung]) -> list[Rung]:
    """Those that are compiled in little more than the least time."""
    least = min((rung.prediction.compile_s for rung in rungs), default=0.0)
    return [rung for rung in rungs if rung.prediction.compile_s <= SOON * least]


def _less_exact(rung: Rung, other: Rung, gate: str) -> bool:
    """True if a rung is clearly less exact than another one, by the gate or else by `SCALE`."""
    name = gate if gate in rung.promised and gate in other.promised else SCALE
    own, theirs = rung.promised.get(name), other.promised.get(name)
    return own is not None and theirs is not None and own > CLEARLY * theirs
