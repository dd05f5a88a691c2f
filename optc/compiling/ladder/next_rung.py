"""The recipe that may hold where the gates of a named one failed, for the error's hint."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from optc.compiling.ladder.members import ALL
from optc.compiling.ladder.options import DEFAULT_GATES, LadderOptions, resolve_ladder
from optc.compiling.ladder.predict import predict_rungs
from optc.compiling.ladder.rungs import Prediction, Rung
from optc.compiling.ladder.search import Search, Trial, values_of
from optc.compiling.recipes.recipe_additions import trims
from optc.compiling.resolving.options import ResolvedOptions
from optc.errors import OptcError
from optc.system.logs.logger import logger
from optc.system.options import AUTO, CompileOptions
from optc.system.options.option import with_changes

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.compiling.judging.judge import Judgement
    from optc.importer.imported import ImportedModel

_LOG = logger(__name__)
#: Options that a search among recipes does not take, or that change nothing of what is predicted.
_LEFT_OUT = ("set", "budget", "trained", "bisect", "keep_failed", "dump_dir", "no_gates")
#: Recipes that are looked at where none is likely to hold: some may not suit the model.
_NEAREST = 2


def next_rung(
    options: ResolvedOptions, imported: ImportedModel, reference: ir.Model, judgement: Judgement
) -> str:
    """The recipe that is likely to hold the gates that failed, with its predicted figures, and the
    command that looks for one; empty where nothing can be said.

    Args:
        options: Of the compile whose gates failed.
        imported: The model.
        reference: Its dense form.
        judgement: What was measured.
    """
    if not any(gate.passed is False for gate in judgement.failed) or trims(options.recipe):
        return ""
    try:
        found = _next(options, imported, reference, judgement)
    except OptcError as error:  # the gates failed, and that is what the user has to know
        _LOG.info("nothing is said about other recipes: %s", error.render())
        return ""
    return found and (
        f"{found}; --recipe {AUTO} finds and proves the fastest recipe with "
        f"{DEFAULT_GATES[0].replace('=', ' ')} or what --gate asks for"
    )


def _next(
    options: ResolvedOptions, imported: ImportedModel, reference: ir.Model, judgement: Judgement
) -> str:
    failed, own = options.recipe.name, options.asked.recipe
    bounds = {name: bound for name, bound in options.recipe.gates.items() if bound is not None}
    texts = tuple(f"{name}={bound!r}" for name, bound in bounds.items())
    changes = {"recipe": AUTO, "gate": texts, "ladder": (ALL, str(own))}
    asked = with_changes(options.asked, {**_defaults(_LEFT_OUT), **changes})
    ladder = resolve_ladder(options.source, asked)
    trial = _trial(judgement)
    ladder = _with_few(ladder, {failed, *_candidates(ladder, bounds, failed, trial)})
    rungs = predict_rungs(imported, ladder, dense=reference).rungs
    search = Search(rungs, bounds)
    search.trials[failed] = trial
    mine = next((rung for rung in rungs if rung.recipe == failed), None)
    likely = search.next()
    if likely is None or mine is None:
        return ""
    return _sentence(likely, mine, likely_to_hold=search.excess(likely) <= 1)


def _candidates(
    ladder: LadderOptions, bounds: Mapping[str, float], failed: str, trial: Trial
) -> Collection[str]:
    """Recipes that are likely to hold by their promises, or else those that come nearest: what a
    graph says of all of them takes as long as two windows of the gates."""
    unknown = Prediction(None, None, None, 0, 0)
    names = [compile.recipe.name for compile in ladder.compiles]
    search = Search([Rung(name, "", unknown, ladder.promised[name]) for name in names], bounds)
    search.trials[failed] = trial
    excesses = {one.recipe: search.excess(one) for one in search.rungs if one.recipe != failed}
    likely = [name for name, excess in excesses.items() if excess <= 1]
    return likely or sorted(excesses, key=excesses.__getitem__)[:_NEAREST]


def _with_few(ladder: LadderOptions, names: Collection[str]) -> LadderOptions:
    kept = [compile for compile in ladder.compiles if compile.recipe.name in names]
    return replace(ladder, compiles=tuple(kept))


def _defaults(names: Sequence[str]) -> dict[str, object]:
    usual = CompileOptions()
    return {name: getattr(usual, name) for name in names}


def _trial(judgement: Judgement) -> Trial:
    values = values_of(judgement.gates)
    return Trial(False, values, tuple(gate.name for gate in judgement.failed), 1)


def _sentence(likely: Rung, mine: Rung, *, likely_to_hold: bool) -> str:
    how = "is likely to hold" if likely_to_hold else "comes nearest by what is known"
    figures = _compared(likely.prediction, mine.prediction)
    return f"{likely.recipe} {how}" + (f" (predicted: {figures})" if figures else "")


def _compared(one: Prediction, other: Prediction) -> str:
    """Bytes and decode speed over those of another recipe."""
    parts = []
    if one.artifact_bytes and other.artifact_bytes:
        parts.append(f"{one.artifact_bytes / other.artifact_bytes:.2f} times the bytes")
    if one.decode_tokens_per_s and other.decode_tokens_per_s:
        ratio = one.decode_tokens_per_s / other.decode_tokens_per_s
        parts.append(f"{ratio:.2f} times the decode speed")
    return ", ".join(parts)
