"""``optc plan`` of models that do not generate text, as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from optc.cli.inputs.bench_calls import refuse_others
from optc.cli.output import (
    byte_text,
    figure,
    print_json,
    print_warnings,
    reserved_stdout,
    show,
    table,
)
from optc.cli.progress import progress_on_stderr
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    from rich.table import Table

    from optc.compiling.tensors.plan import PlannedPart, PlannedRecipe, TensorsPlan

#: Options that such a plan has; others are refused.
_TAKEN = frozenset({"model", "recipe", "objective", "ladder", "gate", "set", "backends", "as_json"})
#: Operators of a graph that have a line.
_LINES = 12


def plan_others(
    context: click.Context, model: str | Path, kind: str, options: dict[str, Any], as_json: bool
) -> None:
    """Print the plan of a model of such a kind (`optc.compiling.compile.source_kind`).

    Raises:
        InputError: An option is of generators of text, or as of `plan_tensors`.
    """
    from optc.compiling.compile import default_recipe
    from optc.compiling.tensors.plan import plan_tensors
    from optc.system.sources.tensor_source import TensorSource

    refuse_others(context, _TAKEN)
    backends = options.pop("backends")
    stated = {name: options[name] for name in ("objective", "ladder", "gate", "set")}
    recipe = options["recipe"]
    if context.get_parameter_source("recipe") is ParameterSource.DEFAULT:
        recipe = default_recipe(kind)
    backend = None if backends in ("here", "all") else backends
    asked = CompileOptions(recipe=recipe, backend=backend, **stated)
    with reserved_stdout(), progress_on_stderr() as progress:
        found = plan_tensors(TensorSource(model), kind, asked, progress)
    if as_json:
        print_json("plan", found.to_json(), list(found.warnings))
        return
    print_warnings(found.warnings)
    show(_whole(found), *(_part(found, one) for one in found.parts), _recipes(found))
    show(*(_passes(one) for one in found.recipes if not one.left_out))


def _whole(plan: TensorsPlan) -> Table:
    rows = table(plan.model, "", "")
    rows.show_header = False
    rows.add_row("task", plan.task)
    rows.add_row("compared with", plan.reference)
    for part in plan.parts:
        for side, specs in (("input", part.inputs), ("output", part.outputs)):
            for one in specs:
                shape = ", ".join(map(str, one.dims))
                rows.add_row(f"{side} of {part.role}", f"{one.name}: {one.dtype} [{shape}]")
    return rows


def _part(plan: TensorsPlan, part: PlannedPart) -> Table:
    title = f"{part.role}: {byte_text(part.weight_bytes)} of weights"
    rows = table(title, "operator", "nodes", numbers=["nodes"])
    for name, count in list(part.operators.items())[:_LINES]:
        rows.add_row(name, str(count))
    rest = list(part.operators.values())[_LINES:]
    if rest:
        rows.add_row(f"{len(rest)} others", str(sum(rest)))
    return rows


def _recipes(plan: TensorsPlan) -> Table:
    rows = table("recipes", "recipe", "engines", "gates", "left out", prose=("gates", "left out"))
    for one in plan.recipes:
        engines = [f"{name} ({why})" if why else name for name, why in one.engines.items()]
        bounds = [f"{name}={figure(b)}" for name, b in one.gates.items() if b is not None]
        rows.add_row(one.recipe, ", ".join(engines), ", ".join(bounds), one.left_out)
    return rows


def _passes(planned: PlannedRecipe) -> Table:
    rows = table(f"passes of {planned.recipe}", "pass", "rewrites")
    for name, counts in planned.rewrites.items():
        rows.add_row(name, ", ".join(f"{what} {count}" for what, count in counts.items()) or "-")
    return rows
