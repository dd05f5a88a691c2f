"""Building engines of an artifact: the target's, and those that draft for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from optc.artifact.manifest import EngineEntry, Source
from optc.artifact.writer import ArtifactWriter
from optc.backend import Backend, BuildOptions, EngineBuild, SharedWeights
from optc.compiling.resolving.engines import SOLE_ENGINE, EngineTarget

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.system.hardware.target import Target

TARGET = "target"


@dataclass(frozen=True)
class BuiltEngine:
    """A built engine.

    Attributes:
        request: What was asked for.
        entry: Its entry in the manifest.
        build: What the backend returned.
        weights: Where its weights are: its own entry's name, or that of the engine it reads.
        seconds: That the build took.
    """

    request: EngineTarget
    entry: EngineEntry
    build: EngineBuild
    weights: SharedWeights
    seconds: float


@dataclass(frozen=True)
class EngineBuilder:
    """Builds engines into an artifact.

    Attributes:
        writer: Of the artifact.
        requests: All target engines; several builds get a model of their own each.
        source: Of a draft model; None is the manifest's own.
    """

    writer: ArtifactWriter
    requests: Sequence[EngineTarget]
    source: Source | None = None

    def build_all(
        self,
        role: str,
        model: ir.Model,
        options: Callable[[EngineTarget], BuildOptions],
    ) -> list[BuiltEngine]:
        """An engine of ``role`` for every request; weights that fit several are written once.

        Args:
            role: As in `EngineEntry`.
            model: The ragged step.
            options: Limits of a request's engine; without weights to share, those of an earlier
                engine are shared where the backend can.

        Raises: as `optc.backend.StepBackend.build`.
        """
        built: list[BuiltEngine] = []
        for request in self.requests:
            own = options(request)
            shared = own.shared or shared_weights(built, request)
            last = request is self.requests[-1]
            limits = replace(own, shared=shared, readers=weight_readers(self.requests, request))
            built.append(self._build(role, request, model if last else model.clone(), limits))
        return built

    def _build(
        self, role: str, request: EngineTarget, model: ir.Model, options: BuildOptions
    ) -> BuiltEngine:
        def make(place: Path) -> EngineBuild:
            return request.steps.build(model, request.target, place, options)

        return build_engine(
            self.writer, request, role, request.backend, make, options.shared, self.source
        )


def build_engine(
    writer: ArtifactWriter,
    request: EngineTarget,
    role: str,
    backend: Backend,
    make: Callable[[Path], EngineBuild],
    shared: SharedWeights | None = None,
    source: Source | None = None,
) -> BuiltEngine:
    """Build an engine into its folder of an artifact.

    Args:
        writer: Of the artifact.
        request: What was asked for.
        role: As in `EngineEntry`.
        backend: Builds it.
        make: Builds it into a folder.
        shared: Weights of an earlier engine that it reads; None are its own.
        source: Of a draft model; None is the manifest's own.

    Raises: as ``make``.
    """
    name, started = engine_of(role, request), time.perf_counter()
    build = make(writer.subfolder(folder_of(name)))
    entry = entry_of(name, role, backend, request.target, build, source)
    own = SharedWeights(f"../{name}", build.backend_data, platform=request.target.platform)
    weights = shared or own
    return BuiltEngine(request, entry, build, weights, time.perf_counter() - started)


def folder_of(engine: str) -> str:
    """The folder of an engine of that name in its artifact."""
    return f"engines/{engine}"


def entry_of(
    name: str,
    role: str,
    backend: Backend,
    target: Target,
    build: EngineBuild,
    source: Source | None = None,
) -> EngineEntry:
    """The entry in the manifest of an engine that was built into `folder_of` it."""
    return EngineEntry(
        name=name,
        role=role,
        backend=backend.name,
        target=target,
        requires=build.requires,
        interface=build.spec,
        data=build.backend_data,
        folder=folder_of(name),
        files=build.files,
        source=source,
    )


def engine_of(role: str, request: EngineTarget) -> str:
    """Name of the engine of ``role`` beside the target engine ``request``."""
    if role == TARGET:
        return request.name
    return role if request.name == SOLE_ENGINE else f"{role}-{request.name}"


def shared_weights(built: Sequence[BuiltEngine], request: EngineTarget) -> SharedWeights | None:
    """The weights of an earlier engine that the one of ``request`` can read."""
    return next((b.weights for b in built if _can_read(request, b.request)), None)


def weight_readers(requests: Sequence[EngineTarget], owner: EngineTarget) -> tuple[Target, ...]:
    """Targets of the other engines that can read the weights of one of ``requests``."""
    others = (request for request in requests if request is not owner)
    return tuple(request.target for request in others if _can_read(request, owner))


def weight_copies(requests: Sequence[EngineTarget]) -> int:
    """The number of engines that will have weights of their own."""
    owners: list[EngineTarget] = []
    for request in requests:
        if not any(_can_read(request, owner) for owner in owners):
            owners.append(request)
    return len(owners)


def _can_read(request: EngineTarget, owner: EngineTarget) -> bool:
    layout = request.steps.weight_layout(request.target)
    return bool(layout) and layout == owner.steps.weight_layout(owner.target)
