"""The engines that a compile was asked for: ``--backend BACKEND[:TARGET]``, repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optc import registry
from optc.backend import Backend, CrossBackend, HiddenBackend, StepBackend, builds_steps
from optc.errors import InputError, UnavailableError, UnsupportedError
from optc.system.hardware.target import VNNI, Target, parse_target
from optc.system.hardware.tiles import TILE_FEATURES
from optc.system.suggest import near

#: Name of an artifact's only engine; several are called after backend and target.
SOLE_ENGINE = "target"


@dataclass(frozen=True)
class EngineTarget:
    """An engine to be built.

    Attributes:
        name: Unique in the artifact.
        backend: Where it comes from.
        target: What it is compiled for.
    """

    name: str
    backend: Backend
    target: Target

    @property
    def steps(self) -> StepBackend:
        """The backend as one of models that generate text.

        Raises:
            UnsupportedError: It builds no engines of them.
        """
        return builds_steps(self.backend)


def kinds_of(engines: Sequence[EngineTarget]) -> set[str]:
    """The kinds of engines that a recipe may have own options for (``for_engines``): backends,
    kinds of target, ``amx`` where one has its tiles, and ``avx2`` where one is for x86 CPUs
    without VNNI."""
    kinds = {kind for one in engines for kind in (one.backend.name, one.target.kind)}
    every = [one.target.features for one in engines]
    if any(TILE_FEATURES.issubset(features) for features in every):
        kinds.add("amx")
    if any("avx2" in features and not VNNI.intersection(features) for features in every):
        kinds.add("avx2")
    return kinds


def parse_engines(
    backends: str | Sequence[str] | None, target: str | None, default_backend: str
) -> tuple[EngineTarget, ...]:
    """The engines that the options name, which can be built here.

    Raises:
        InputError: As `name_engines`.
        UnavailableError: A backend cannot build here.
    """
    requests = name_engines(backends, target, default_backend)
    for request in requests:
        backend = request.backend
        reason = backend.available()
        if not reason and isinstance(backend, CrossBackend):
            reason = backend.lacks(request.target)
        if reason:
            raise UnavailableError(reason, where=f"backend {request.backend.name}")
    return requests


def name_engines(
    backends: str | Sequence[str] | None, target: str | None, default_backend: str
) -> tuple[EngineTarget, ...]:
    """The engines that the options name.

    Args:
        backends: ``BACKEND[:TARGET]``, several joined by commas or as a sequence; a target is a
            name of `optc.system.hardware.target.known_targets`, several CUDA architectures joined
            by ``+`` or a comma (``tensorrt:sm_89,sm_120``). None or empty is ``default_backend``.
        target: Of those that name none; several, joined by commas, are an engine of each such
            backend for each. None is ``native``.
        default_backend: The recipe's.

    Raises:
        InputError: Unknown backend or target, a target that the backend has no code for, an engine
            asked for twice, or a ``target`` that no engine would have.
    """
    texts = [backends] if isinstance(backends, str) else list(backends or [default_backend])
    pairs = [_pair(item) for text in texts for item in split_engines(text)]
    if target is not None and all(own for _, own in pairs):
        raise InputError(
            "every --backend names its own target",
            where=f"--target {target}",
            hint="leave one of them out",
        )
    found = [(_backend(name), one) for name, own in pairs for one in _targets(name, own, target)]
    _check_different(found)
    for backend, wanted in found:
        _check_taken(backend, wanted)
    return tuple(
        EngineTarget(SOLE_ENGINE if len(found) == 1 else engine_name(*pair), *pair)
        for pair in found
    )


def split_engines(text: str) -> list[str]:
    """The ``BACKEND[:TARGET]`` of a list with commas; architectures go to the item before."""
    items: list[str] = []
    for piece in text.split(","):
        if items and piece.startswith("sm_"):
            items[-1] += f"+{piece}"
        else:
            items.append(piece)
    return items


def split_targets(text: str) -> list[str]:
    """The targets of a list with commas; CUDA architectures in a row are one target."""
    items: list[str] = []
    for piece in text.split(","):
        if items and piece.startswith("sm_") and "sm_" in items[-1]:
            items[-1] += f"+{piece}"
        else:
            items.append(piece)
    return items


def engine_name(backend: Backend, target: Target) -> str:
    """The name of one of several engines: ``tvm-x86-64-v3``, ``tensorrt-sm_89+sm_120``."""
    return f"{backend.name}-{target.arch or target.name}"


def check_self_draft(engines: Sequence[EngineTarget]) -> None:
    """Check that engines can draft for these on their weights.

    Raises:
        UnsupportedError: A backend cannot share weights.
    """
    for request in engines:
        if not request.steps.weight_layout(request.target):
            raise UnsupportedError(
                f"engines of the {request.backend.name} backend for {request.target.name} cannot "
                "read the weights of another",
                where="--self-draft",
                hint="leave it or that engine out",
            )


def check_layer(engines: Sequence[EngineTarget]) -> None:
    """Check that engines give hidden states, and that a layer can draft by them.

    Raises:
        UnsupportedError: A backend has no such engines.
    """
    for request in engines:
        backend = request.backend
        if not (isinstance(backend, HiddenBackend) and backend.gives_hidden(request.target)):
            raise UnsupportedError(
                f"engines of the {backend.name} backend for {request.target.name} give no hidden "
                "states",
                where="--eagle",
                hint="leave it or that engine out",
            )


def _pair(text: str) -> tuple[str, str | None]:
    name, colon, target = text.partition(":")
    return name, target if colon else None


def _backend(name: str) -> Backend:
    if name not in registry.backend_names():
        raise InputError(
            f"unknown backend {name!r}",
            where="--backend",
            hint=near(name, registry.backend_names()),
        )
    return registry.backend(name)


def _targets(backend: str, own: str | None, default: str | None) -> list[Target]:
    if own is not None:
        return [parse_target(own, f"--backend {backend}:{own}")]
    return [parse_target(name) for name in split_targets(default or "native")]


def _check_different(found: Sequence[tuple[Backend, Target]]) -> None:
    seen: set[str] = set()
    for pair in found:
        name = engine_name(*pair)
        if name in seen:
            raise InputError(
                f"{pair[0].name} for {pair[1].name} is asked for twice", where="--backend"
            )
        seen.add(name)


def _check_taken(backend: Backend, target: Target) -> None:
    refusal = backend.takes(target)
    if refusal:
        others = (registry.backend(name) for name in registry.backend_names())
        able = [
            f"--backend {b.name}:{target.arch or target.name}"
            for b in others
            if not b.takes(target)
        ]
        raise InputError(
            refusal,
            where=f"--backend {backend.name}:{target.name}",
            hint=" or ".join(able) or "'optc targets' lists the targets",
        )
