"""Chooses the engine of an artifact that a machine should run, and says why not the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from optc import registry
from optc.artifact.manifest import EngineEntry
from optc.errors import InputError, UnavailableError
from optc.system.hardware.machine import Machine, this_machine
from optc.system.hardware.platforms import LINUX, MACOS
from optc.system.suggest import near

#: What each part of `_score` is called in a reason.
_WHY = (
    "it runs on a CUDA device",
    "it keeps keys and values in pages",
    "its logits do not depend on what shares a step",
    "it takes trees of drafts",
    "it has Medusa heads",
    "it takes adapters",
    "it samples on its device",
    "it uses more of this CPU",
    "its backend goes first",
)
#: How to compile for the machine at hand.
_OWN = {LINUX: "--target native", MACOS: "on Linux, with --target arm64-macos-dotprod"}
#: Engines of at least this part of the fastest one's speed count as equally fast: medians of the
#: gates' few rounds differ by as much from one measurement to the next.
_AS_FAST = 0.9


@dataclass(frozen=True)
class Rejected:
    """An engine that was not chosen: its name and why, one sentence."""

    name: str
    reason: str


@dataclass(frozen=True)
class Choice:
    """The engine to load, and all others of its role with the reason against each."""

    entry: EngineEntry
    rejected: tuple[Rejected, ...] = ()


def choose_engine(
    engines: Iterable[EngineEntry],
    where: str,
    *,
    role: str = "target",
    name: str | None = None,
    beside: EngineEntry | None = None,
    machine: Machine | None = None,
    speeds: Mapping[str, float] | None = None,
) -> Choice:
    """The engine of ``role`` that suits the machine best.

    Of those that can be loaded, one on a CUDA device goes before one on the CPU. Of these, those
    that were measured to be slower than the fastest drop out. Then what an engine can do decides:
    paged KV, batch invariance, trees of drafts, Medusa heads, adapters, sampling. Then how many
    features of the CPU its code uses, then the greater ``preference`` of its backend (TVM before
    ONNX Runtime), then which was compiled first.

    Args:
        engines: Of the artifact.
        where: Names the artifact in messages.
        role: As in `EngineEntry`.
        name: This one and no other.
        beside: A target engine; if there is one of the same backend and target, it is taken.
        machine: None is this one.
        speeds: What is measured of some engines on such a machine, by name (`measured_speeds`).

    Raises:
        InputError: There is no engine of that role or name.
        UnavailableError: None of them can be loaded; gives the reason against each.
    """
    candidates = _beside(_of_role(engines, role, where), beside)
    here = this_machine() if machine is None else machine
    if name is not None:
        chosen = _named(candidates, name, where)
        others = [Rejected(e.name, f"{name} was asked for") for e in candidates if e is not chosen]
        candidates = [chosen]
    else:
        others = []
    reasons = {engine.name: reason_against(engine, here) for engine in candidates}
    fitting = [engine for engine in candidates if not reasons[engine.name]]
    if not fitting:
        raise UnavailableError(
            "; ".join(f"{_described(e)}: {reasons[e.name]}" for e in candidates),
            where=where,
            hint=f"compile it for this machine ({_OWN[here.system]}), or install what is missing",
        )
    reasons |= _slower(fitting, speeds or {})
    best = max((e for e in fitting if not reasons[e.name]), key=_score)  # the first of equals
    rejected = [
        Rejected(engine.name, reasons[engine.name] or _preferred(best, engine))
        for engine in candidates
        if engine is not best
    ]
    return Choice(best, (*rejected, *others))


def reason_against(engine: EngineEntry, machine: Machine) -> str:
    """Empty if the machine can load the engine, else the reason."""
    try:
        backend = registry.backend(engine.backend)
    except InputError:
        return f"the backend {engine.backend} is not installed"
    return backend.can_load(engine, machine)


def _of_role(engines: Iterable[EngineEntry], role: str, where: str) -> list[EngineEntry]:
    every = list(engines)
    found = [engine for engine in every if engine.role == role]
    if not found:
        roles = ", ".join(sorted({engine.role for engine in every})) or "none"
        raise InputError(f"has no engine of role {role!r}", where=where, hint=f"roles: {roles}")
    return found


def _beside(candidates: list[EngineEntry], target: EngineEntry | None) -> list[EngineEntry]:
    if target is None:
        return candidates
    same = [e for e in candidates if (e.backend, e.target) == (target.backend, target.target)]
    return same or candidates


def _named(candidates: Sequence[EngineEntry], name: str, where: str) -> EngineEntry:
    by_name = {engine.name: engine for engine in candidates}
    if name not in by_name:
        raise InputError(f"has no engine {name!r}", where=where, hint=near(name, list(by_name)))
    return by_name[name]


def _slower(fitting: Sequence[EngineEntry], speeds: Mapping[str, float]) -> dict[str, str]:
    """Why engines drop out that were measured to be slower than the fastest of their kind."""
    found = {}
    for kind in {engine.target.kind for engine in fitting}:
        measured = [e for e in fitting if e.target.kind == kind and e.name in speeds]
        fastest = max(measured, key=lambda engine: speeds[engine.name], default=None)
        if fastest is None:
            continue
        for engine in measured:
            times = speeds[fastest.name] / speeds[engine.name]
            if times * _AS_FAST > 1:
                found[engine.name] = (
                    f"it fits, but the gates measured {fastest.name} to be {times:.2g} times as "
                    "fast on such a machine"
                )
    return found


def _score(engine: EngineEntry) -> tuple[int, ...]:
    backend, step = registry.backend(engine.backend), engine.step
    return (
        engine.target.kind == "cuda",
        step is not None and step.kv_layout == "paged",
        step is not None and step.batch_invariant,
        step is not None and step.tree,
        step is not None and bool(step.accept_rates),
        step is not None and step.adapters is not None,
        step is not None and step.samples,
        len(backend.features_used(engine)),
        backend.preference,
    )


def _preferred(best: EngineEntry, engine: EngineEntry) -> str:
    pairs = zip(_score(best), _score(engine), _WHY, strict=True)
    why = next((text for a, b, text in pairs if a != b), "it was compiled first")
    return f"it fits, but {best.name} is preferred: {why}"


def _described(engine: EngineEntry) -> str:
    return f"engine {engine.name!r} ({engine.backend} for {engine.target.name})"
