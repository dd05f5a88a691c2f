"""``optc plan``: what backends make of a model, before anything is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from optc.cli.judged.ladder_tables import ladder_tables
from optc.cli.options import ANY_MODEL, add_options
from optc.cli.output import (
    byte_text,
    figure,
    json_option,
    print_json,
    print_warnings,
    reserved_stdout,
    show,
    table,
)
from optc.cli.progress import progress_on_stderr
from optc.runtime.settings import ServeSettings
from optc.system.options import AUTO, PLANNED, CompileOptions
from optc.system.units import kv_text

if TYPE_CHECKING:
    from rich.table import Table

    from optc.compiling.plan import Plan
    from optc.compiling.predictions.engine_plan import EnginePlan
    from optc.proof.roofline.ceilings import Ceiling


@click.command("plan", short_help="Say what backends make of a model; builds nothing.")
@click.argument("model", type=ANY_MODEL)
@add_options(CompileOptions, *PLANNED)
@click.option(
    "--backends",
    default="here",
    show_default=True,
    metavar="here|all|BACKEND[:TARGET],…",
    help="Backends to plan for: all for this machine, or for every target.",
)
@click.option(
    "--measure", is_flag=True, help="Measure this machine, for the roofline of each engine."
)
@add_options(ServeSettings, "resident_memory")
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    as_json: bool,
    measure: bool,
    resident_memory: str | None,
    **options: Any,
) -> None:
    """Import MODEL, run the recipe's passes, and list how each backend takes every kind of node.

    native is one operation of the backend, decomposed several of them; what is unsupported stops a
    compile. Also predicts bytes of weights, of keys and values and of the artifact, the peak memory
    and the time of a compile and, with --measure, tokens/s that no engine can exceed on this
    machine. Where weights are larger than the memory for them (--resident-memory, or what is left
    here), says what a token reads from the disk. With --recipe auto, lists the recipes that a
    compile would try, in their order.

    Of a model that does not generate text: its inputs and outputs, its operators, what the recipe's
    passes would rewrite, and the gates that would judge it.
    """
    from optc.system.needs import compile_packages

    with compile_packages():
        from optc.artifact.tasks.text_generation import TEXT_GENERATION
        from optc.compiling.compile import source_kind

        kind = source_kind(options["model"])
        if kind != TEXT_GENERATION.name:
            from optc.cli.inputs.plan import plan_others

            plan_others(context, options.pop("model"), kind, options, as_json)
            return
    if options["recipe"] == AUTO:
        _plan_ladder(as_json, measure, options)
        return
    warnings: list[str] = []
    with compile_packages(), reserved_stdout(), progress_on_stderr() as progress:
        from optc.compiling.plan import plan

        model = options.pop("model")
        ceilings = _measure(warnings, model) if measure else None
        found = plan(
            model, ceilings=ceilings, resident_memory=resident_memory, progress=progress, **options
        )
    warnings += found.warnings
    if as_json:
        print_json("plan", found.to_json(), warnings)
        return
    print_warnings(warnings)
    show(_whole(found))
    for verdict, engines in _alike(found.engines):
        show(_nodes(verdict, engines))
    show(_kept(found.engines))
    show(_engines(found.engines), *_remarks(found.engines))


def _plan_ladder(as_json: bool, measure: bool, options: dict[str, Any]) -> None:
    """Print the ladder of ``--recipe auto``."""
    from optc.system.needs import compile_packages

    del options["recipe"]
    asked = options.pop("backends")
    warnings: list[str] = []
    with compile_packages(), reserved_stdout(), progress_on_stderr() as progress:
        from optc.compiling.ladder.plan import plan_ladder

        found = plan_ladder(
            options.pop("model"),
            backends=None if asked in ("here", "all") else asked,
            ceilings=_measure(warnings, Path()) if measure else None,
            progress=progress,
            **options,
        )
    warnings += found.warnings
    if as_json:
        print_json("plan", found.to_json(), warnings)
        return
    print_warnings(warnings)
    show(*ladder_tables(found.ladder))


def _measure(warnings: list[str], model: str | Path) -> Mapping[str, Ceiling]:
    """Ceilings of this machine, and of the disk with the model's files."""
    from optc.proof.roofline.beyond_memory import DISK, disk_ceiling
    from optc.proof.roofline.ceilings import disturbances
    from optc.proof.roofline.this_machine import measure_machine

    meter = measure_machine("plan --measure")
    warnings += disturbances(meter)
    disk = disk_ceiling(Path(model))
    return {**meter.ceilings(), **({} if disk is None else {DISK: disk})}


def _whole(plan: Plan) -> Table:
    rows = table(f"{plan.model}, {plan.recipe}", "", "")
    rows.show_header = False
    rows.add_row("context", f"{plan.max_context} tokens")
    rows.add_row("weights", byte_text(plan.weight_bytes))
    kept = kv_text(plan.kv_bytes_beyond_windows, plan.kv_bytes_per_token)
    rows.add_row("keys and values of a token", kept)
    rows.add_row("of a sequence of the context", byte_text(plan.kv_bytes_per_sequence))
    rows.add_row("peak memory of a compile", byte_text(plan.compile_peak_bytes))
    rows.add_row("without gates", byte_text(plan.compile_peak_bytes_without_gates))
    if plan.artifact_bytes is not None:
        rows.add_row("artifact", byte_text(plan.artifact_bytes))
    if plan.compile_seconds:
        rows.add_row("compile", _times(plan))
    return rows


def _times(plan: Plan) -> str:
    """Rough seconds of a first compile and of a repeated one, and the stage that takes most."""
    whole, gates = sum(plan.compile_seconds.values()), plan.compile_seconds.get("gates", 0.0)
    again = sum(plan.compile_seconds_again.values())
    most = max(plan.compile_seconds, key=lambda stage: plan.compile_seconds[stage])
    return (
        f"roughly {whole:.0f} s, {again:.0f} s with its kernels in the cache; "
        f"without gates {gates:.0f} s less; most in {most} (by rates of other machines: half to "
        "twice as long is usual)"
    )


def _alike(engines: Sequence[EnginePlan]) -> list[tuple[EnginePlan, list[str]]]:
    """Engines whose nodes are taken alike, by the names of all of them."""
    groups: list[tuple[EnginePlan, list[str]]] = []
    for engine in engines:
        for first, names in groups:
            if (first.backend, first.nodes) == (engine.backend, engine.nodes):
                names.append(engine.name)
                break
        else:
            groups.append((engine, [engine.name]))
    return groups


def _nodes(engine: EnginePlan, names: Sequence[str]) -> Table:
    rows = table(", ".join(names), "operator", "nodes", "taken", "how or why", numbers=["nodes"])
    for column in (rows.columns[0], rows.columns[-1]):
        column.overflow = "fold"  # names are long words
    for node in engine.nodes:
        rows.add_row(node.operator, str(node.count), node.how, node.reason)
    return rows


def _kept(engines: Sequence[EnginePlan]) -> Table:
    """A table of how engines keep keys and values, by the type that ``kv-cache.dtype`` asks for."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for engine in engines:
        kinds: dict[str, list[str]] = {"native": [], "unsupported": []}
        for dtype, support in engine.kv_types.items():
            how = support.reason if support.how == "decomposed" else support.how
            kinds.setdefault(how, []).append(dtype)
        kept, refused = (", ".join(kinds.pop(how)) for how in ("native", "unsupported"))
        others = "; ".join(f"{', '.join(types)}: {what}" for what, types in kinds.items())
        names.setdefault((kept, others, refused), []).append(engine.name)
    columns = ("name", "as it is", "otherwise", "refused")
    rows = table("keys and values by type", *columns, prose=columns)
    for cells, named in names.items():
        rows.add_row(", ".join(named), *cells)
    return rows


def _engines(engines: Sequence[EnginePlan]) -> Table:
    numbers = ["weights", "a token reads"]
    if any(engine.bound for engine in engines):
        numbers += ["decode/s at most", "prefill/s at most"]
    counts = "native, decomposed, unsupported"
    rows = table("engines", "name", counts, *numbers, numbers=numbers, prose=[counts])
    for engine in engines:
        found = ", ".join(str(count) for count in engine.counts.values())
        rows.add_row(engine.name, found, *_figures(engine)[: len(numbers)])
    return rows


def _figures(engine: EnginePlan) -> tuple[str, str, str, str]:
    """Bytes of weights and of a decode step, and the bounds."""
    if engine.estimate is None:
        return ("-", "-", "-", "-")
    step = int(engine.to_json()["estimate"]["decode_bytes"])
    decode = engine.bound.decode_tokens_per_s if engine.bound else None
    prefill = engine.bound.prefill_tokens_per_s if engine.bound else None
    return (
        byte_text(engine.estimate.weight_bytes),
        byte_text(step),
        figure(decode),
        figure(prefill),
    )


def _beyond(engine: EnginePlan) -> str:
    """The reads from the disk of a token; empty where all weights stay in memory."""
    found = engine.beyond_memory
    if found is None:
        return ""
    text = (
        f"{byte_text(found.resident_bytes)} of the weights stay in memory; a token reads "
        f"{byte_text(found.read_bytes)} from the disk (fewer where the same experts come again)"
    )
    if found.disk_bytes_per_s is None:
        return f"{text}; --measure says how long that takes"
    rate = f"{figure(found.disk_bytes_per_s / 1e9)} GB/s"
    if found.tokens_per_s is None:
        return text
    return f"{text}: at {rate} of this disk at most {figure(found.tokens_per_s)} tokens/s"


def _remarks(engines: Sequence[EnginePlan]) -> list[str]:
    """Why engines cannot be built here or have no estimates, and what they read from the disk, one
    line a reason."""
    names: dict[str, list[str]] = {}
    for engine in engines:
        for reason in (engine.unavailable, engine.no_estimate, _beyond(engine)):
            if reason:
                names.setdefault(reason, []).append(engine.name)
    return [f"{', '.join(named)}: {reason}" for reason, named in names.items()]
