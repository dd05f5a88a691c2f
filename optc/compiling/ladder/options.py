"""A compile with ``--recipe auto``, looked up and checked before any work begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from optc.compiling.ladder.losses import losses_of
from optc.compiling.ladder.members import Member, find_members
from optc.compiling.ladder.rungs import OBJECTIVES, Objective
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.resolving.options import (
    ResolvedOptions,
    default_output,
    limit_of,
    resolve_options,
)
from optc.errors import InputError
from optc.importer.folders.given_model import given_model
from optc.importer.hub import HubModel
from optc.system.options import AUTO, CompileOptions
from optc.system.progress import Progress, no_progress
from optc.system.suggest import near

#: The gate where the user names none: about what Q6_K of llama.cpp loses of models of 135 M and
#: 270 M weights (ADR 0147).
DEFAULT_GATES = ("kl_mean=0.01",)
#: Options that one recipe is named for, and why `AUTO` does not take them.
_REFUSED: Mapping[str, str] = {
    "no_gates": "recipes are chosen by their gates",
    "budget": "a budget is for one recipe; --objective size finds the smallest artifact that holds",
    "trained": "weights are trained for one recipe",
    "bisect": "a divergence is looked for in one recipe",
    "keep_failed": "several results may fail",
    "dump_dir": "the graphs of several recipes would lie there",
}


@dataclass(frozen=True)
class LadderOptions:
    """A ladder that may be climbed.

    Attributes:
        asked: What the user said.
        objective: What orders it.
        bounds: What is judged, by gate.
        default_bounds: Whether the user named none.
        output: The artifact's folder.
        compiles: A compile by each recipe, in no order.
        promised: The losses that each recipe's own gates allow, by recipe.
        left_out: Why a recipe is not tried, by recipe.
        max_ram_bytes: As of `ResolvedOptions`.
        progress: Told what goes on.
    """

    asked: CompileOptions
    objective: Objective
    bounds: Mapping[str, float]
    default_bounds: bool
    output: Path
    compiles: tuple[ResolvedOptions, ...]
    promised: Mapping[str, Mapping[str, float]]
    left_out: Mapping[str, str]
    max_ram_bytes: int = 0
    progress: Progress = no_progress


def resolve_ladder(
    model: str | Path, asked: CompileOptions, progress: Progress = no_progress
) -> LadderOptions:
    """Look everything up by name and check that named files exist, for every recipe of the ladder.

    A recipe that a backend or another option refuses is left out.

    Raises: as `optc.compiling.resolving.options.resolve_options`, where every recipe is refused.
        InputError: An objective, a gate or a recipe that is none, or an option that is for a named
            recipe.
    """
    objective = cast(Objective, check_asked(asked, OBJECTIVES))
    texts = tuple(asked.gate) or DEFAULT_GATES
    bounds = _bounds(texts)
    members = find_members(asked, texts)
    source, named = given_model(model, base=asked.base, code=asked.allow_remote_code)
    compiles, left_out = _resolve_each(source, members, named, progress)
    return LadderOptions(
        asked,
        objective,
        bounds,
        not asked.gate,
        asked.output or default_output(source, AUTO),
        compiles,
        {one.recipe.name: losses_of(one.recipe.gates) for one in members},
        left_out,
        limit_of(asked.max_ram),
        progress,
    )


def check_asked(asked: CompileOptions, objectives: Sequence[str]) -> str:
    """Check the options that concern the ladder itself; the objective.

    Args:
        asked: By the user.
        objectives: That there are, the one first that is meant where none is named.

    Raises:
        InputError: Something is not possible with ``--recipe auto``.
    """
    for name, why in _REFUSED.items():
        if getattr(asked, name):
            raise InputError(
                f"not with --recipe auto: {why}",
                where="--" + name.replace("_", "-"),
                hint="leave it out, or name a recipe",
            )
    wanted = asked.objective or objectives[0]
    if wanted in objectives:
        return wanted
    raise InputError(
        f"unknown objective {wanted!r}", where="--objective", hint=near(wanted, objectives)
    )


def _bounds(texts: Sequence[str]) -> dict[str, float]:
    """The bounds by gate.

    Raises:
        InputError: A gate that is none, or nothing is judged.
    """
    gates = load_recipe(CompileOptions().recipe, gates=texts).gates
    named = {text.partition("=")[0] for text in texts}
    bounds = {name: bound for name in gates if name in named and (bound := gates[name]) is not None}
    if not bounds:
        raise InputError(
            "no gate has a bound, and recipes are chosen by their gates",
            where="--gate",
            hint=f"give one, such as --gate {DEFAULT_GATES[0]}",
        )
    return bounds


def _resolve_each(
    source: Path, members: Sequence[Member], hub: HubModel | None, progress: Progress
) -> tuple[tuple[ResolvedOptions, ...], dict[str, str]]:
    """A compile by each recipe that is not refused, and why others are."""
    found: list[ResolvedOptions] = []
    refusals: dict[str, InputError] = {}
    for member in members:
        try:
            # the source has its base already
            resolved = resolve_options(source, replace(member.asked, base=None), progress)
        except InputError as error:
            refusals[member.recipe.name] = error
        else:
            found.append(replace(resolved, hub=hub))
    if not found:
        raise next(iter(refusals.values()))
    return tuple(found), {name: error.render() for name, error in refusals.items()}
