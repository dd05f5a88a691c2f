"""``optc targets``: what can be compiled for, and what this machine runs and reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from optc import registry
from optc.backend import CrossBackend
from optc.cli.commands.bench_tables import ceilings_text
from optc.cli.output import json_option, print_json, print_warnings, reserved_stdout, show, table
from optc.proof.roofline.measured_targets import facts_of
from optc.system.hardware.machine import Machine, this_machine
from optc.system.hardware.target import (
    Target,
    cpu_name,
    known_targets,
    parse_target,
    usable_threads,
)


@click.command("targets", short_help="List the targets and which of them run here.")
@click.option("--measure", is_flag=True, help="Measure this machine's bandwidth and peaks.")
@click.option(
    "--fetch",
    metavar="TARGET",
    help="Get what compiling for another processor or system needs from the package index.",
)
@json_option
def command(measure: bool, fetch: str | None, as_json: bool) -> None:
    """List the targets with what they need, on which machines their speed was measured and when,
    and which of them run here.

    With --measure: read bandwidth and int8, bf16 and fp32 peaks of this machine, on all threads.

    With --fetch TARGET: the runtime libraries of another kind of processor or system, such as
    aarch64-dotprod or arm64-macos-dotprod on x86, which engines for it carry; some 95 MB are
    downloaded by pip, once.
    """
    if fetch is not None:
        _fetch(parse_target(fetch, "--fetch"), as_json)
        return
    host = this_machine()
    entries = [_describe(target, host) for target in known_targets().values()]
    warnings: list[str] = []
    ceilings = _measure(warnings) if measure else None
    if as_json:
        machine: dict[str, Any] = {
            "cpu": cpu_name(),
            "features": sorted(host.features),
            "sm": list(host.sm),
            "threads": usable_threads(),
        }
        if ceilings is not None:
            machine["ceilings"] = ceilings
        print_json("targets", {"targets": entries, "host": machine}, warnings)
        return
    print_warnings(warnings)
    rows = table("targets", "name", "here", "speed measured on")
    for entry in entries:
        runs = "yes" if entry["runs_here"] else "no"
        rows.add_row(entry["name"], runs, _measured(entry))
    show(rows, *_needs(entries), *_reasons(entries), _here(host))
    if ceilings is not None:
        show(f"{usable_threads()} threads; {ceilings_text(ceilings)}")


def _fetch(target: Target, as_json: bool) -> None:
    backends = [registry.backend(name) for name in registry.backend_names()]
    able = [b for b in backends if isinstance(b, CrossBackend) and not b.takes(target)]
    with reserved_stdout():
        done = {backend.name: backend.fetch(target) for backend in able}
    if as_json:
        print_json("targets", {"fetched": done}, [])
        return
    for name, text in done.items():
        show(f"{name}: {text}")
    if not done:
        show(f"{target.name} needs nothing from the package index")


def _measured(entry: Mapping[str, Any]) -> str:
    found = ", ".join(f"{one['machine']} {one['date']}" for one in entry["measured"])
    return found or f"not measured; {entry['tested']}"


def _needs(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Processors that have what targets need, one line a target."""
    fixed = (entry for entry in entries if entry["name"] != "native")
    return [
        f"{entry['name']} needs {' '.join(entry['features']) or 'a GPU'}: {entry['runs_on']}"
        for entry in fixed
    ]


def _here(host: Machine) -> str:
    devices = ", ".join(f"sm_{sm}" for sm in host.sm) or "no CUDA device"
    features = " ".join(sorted(host.features)) or "nothing that kernels use"
    return f"this machine: {cpu_name()}, {usable_threads()} threads, {features}; {devices}"


def _reasons(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why targets do not run here, one line a reason."""
    names: dict[str, list[str]] = {}
    for entry in entries:
        if entry["reason"]:
            names.setdefault(entry["reason"], []).append(entry["name"])
    return [f"{', '.join(named)}: {reason}" for reason, named in names.items()]


def _measure(warnings: list[str]) -> dict[str, Any]:
    from optc.proof.roofline.ceilings import ceilings_json, disturbances
    from optc.proof.roofline.this_machine import measure_machine

    with reserved_stdout():
        meter = measure_machine("targets --measure")
    warnings += disturbances(meter)
    return ceilings_json(meter)


def _describe(target: Target, host: Machine) -> dict[str, Any]:
    reason, facts = host.misfit(target), facts_of(target)
    return {
        "name": target.name,
        "kind": target.kind,
        "features": list(target.features),
        "sm": list(target.sm),
        "runs_on": facts.runs_on,
        "measured": [asdict(one) for one in facts.measured],
        "tested": facts.tested,
        "runs_here": not reason,
        "missing": list(target.missing_on(host.features)),
        "reason": reason,
    }
