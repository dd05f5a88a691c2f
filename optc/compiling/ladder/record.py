"""The record of a search over a ladder, for reports and messages."""

from __future__ import annotations

import math
from typing import Any

from optc import registry
from optc.compiling.ladder.options import LadderOptions
from optc.compiling.ladder.predict import Predictions
from optc.compiling.ladder.rungs import Rung
from optc.compiling.ladder.search import Search, Trial
from optc.errors import GateError


def ladder_json(
    options: LadderOptions, predictions: Predictions, search: Search | None = None
) -> dict[str, Any]:
    """The ladder as reports have it.

    ``outcome`` of a rung is ``chosen``, ``held``, ``fell``, ``skipped`` (it needed no trial),
    ``not tried`` (a better one held), ``left out`` (it was never a rung)
    or, before the search, ``waiting``.
    """
    best = None if search is None else search.best
    rungs = [_rung_json(rung, search) for rung in predictions.rungs]
    rungs += [
        {"recipe": name, "outcome": "left out", "why": why}
        for name, why in sorted(predictions.left_out.items())
    ]
    return {
        "objective": options.objective,
        "gates": dict(options.bounds),
        "default_gates": options.default_bounds,
        "chosen": None if best is None else best.recipe,
        "rungs": rungs,
    }


def _rung_json(rung: Rung, search: Search | None) -> dict[str, Any]:
    outcome, why = ("waiting", "") if search is None else _outcome(rung, search)
    trial = None if search is None else search.trials.get(rung.recipe)
    measured = {
        "windows": 0 if trial is None else trial.windows,
        "values": {} if trial is None else dict(trial.values),
        "seconds": 0.0 if trial is None else trial.seconds,
    }
    return {**rung.to_json(), "outcome": outcome, "why": why, **measured}


def _outcome(rung: Rung, search: Search) -> tuple[str, str]:
    trial, best = search.trials.get(rung.recipe), search.best
    if trial is not None and trial.held:
        return ("chosen", "") if rung is best else ("held", "a better one held, too")
    if trial is not None:
        return "fell", trial.why
    if rung.recipe in search.skipped:
        return "skipped", search.skipped[rung.recipe]
    return "not tried", "a better one held"


class NoRungHeldError(GateError):
    """No recipe of the ladder holds the gates; nothing was written.

    Attributes:
        details: ``ladder`` (`ladder_json`), ``gates`` of the rung that came nearest, its name
            ``nearest``, ``warnings`` and ``seconds``.
    """

    def __init__(self, ladder: dict[str, Any], search: Search, seconds: float) -> None:
        wanted = ", ".join(f"{name}={bound:g}" for name, bound in search.bounds.items())
        tried, found = len(search.trials), search.nearest()
        nearest, near_text = "", "none could be measured"
        if found is not None:
            nearest, near_text = found[0].recipe, f"the nearest is {_nearest(*found, search)}"
        super().__init__(
            f"no recipe holds {wanted}: {tried} of {len(search.rungs)} were tried; {near_text}",
            where="--recipe auto",
            hint=f"no artifact was written; {_way_out(found)}",
        )
        self.details: dict[str, Any] = {
            "artifact": None,
            "ladder": ladder,
            "nearest": nearest,
            "gates": [],
            "warnings": [],
            "seconds": seconds,
        }


def _nearest(rung: Rung, trial: Trial, search: Search) -> str:
    values = [f"{name} {trial.values[name]:.3g}" for name in search.bounds if name in trial.values]
    return f"{rung.recipe} with {', '.join(values)}"


def _way_out(found: tuple[Rung, Trial] | None) -> str:
    if found is None:
        return "the ladder says why each fell"
    rung, trial = found
    values = {name: trial.values[name] for name in trial.failed if name in trial.values}
    texts = " ".join(f"--gate {name}={looser(name, value)}" for name, value in values.items())
    return f"{texts or 'a looser --gate'} is likely to hold with {rung.recipe}"


def looser(gate: str, value: float) -> str:
    """A bound of two digits that a value holds."""
    if not value:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    steps = value / unit
    rounded = math.ceil(steps) if registry.measures()[gate].upper else math.floor(steps)
    return f"{rounded * unit:.6g}"
