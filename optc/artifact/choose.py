"""Which engine of an artifact a machine should run, and why not the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optc import registry
from optc.artifact.manifest import EngineEntry
from optc.errors import InputError, UnavailableError
from optc.machine import Machine, this_machine
from optc.near import near

#: What each part of `_score` is called in a reason.
_WHY = ("it runs on a CUDA device", "it uses more of this CPU", "its backend goes first")


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
) -> Choice:
    """The engine of ``role`` that suits the machine best.

    Of those that can be loaded, one on a CUDA device goes before one on the CPU, then the one that
    uses more CPU features, then that of the backend with the greater ``preference`` (TVM before
    ONNX Runtime), then the one that was compiled first.

    Args:
        engines: Of the artifact.
        where: Names the artifact in messages.
        role: As in `EngineEntry`.
        name: This one and no other.
        beside: A target engine; if there is one of the same backend and target, it is taken.
        machine: None is this one.

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
            hint="compile it for this machine (--target native), or install what is missing",
        )
    best = max(fitting, key=_score)  # the first of equals
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


def _score(engine: EngineEntry) -> tuple[bool, int, int]:
    preference = registry.backend(engine.backend).preference
    return engine.target.kind == "cuda", len(engine.target.features), preference


def _preferred(best: EngineEntry, engine: EngineEntry) -> str:
    pairs = zip(_score(best), _score(engine), _WHY, strict=True)
    why = next((text for a, b, text in pairs if a != b), "it was compiled first")
    return f"it fits, but {best.name} is preferred: {why}"


def _described(engine: EngineEntry) -> str:
    return f"engine {engine.name!r} ({engine.backend} for {engine.target.name})"
