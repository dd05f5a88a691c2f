"""What backends make of a model, before anything is built: ``optc plan``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc import registry
from optc.backend import Backend, BuildOptions, Support
from optc.driver.compiling.engines import EngineTarget, engine_name, name_engines
from optc.driver.compiling.limits import peak_bytes, weight_bytes
from optc.driver.compiling.lowering import Lowered, lower
from optc.driver.compiling.memory import PeakMemory
from optc.driver.compiling.options import ResolvedOptions, build_limits, for_engines
from optc.driver.recipes.kv_types import kv_supports
from optc.driver.recipes.recipe_options import resolve_recipe
from optc.errors import UnavailableError, UnsupportedError
from optc.forms.find import form_type
from optc.forms.ragged import RaggedStep
from optc.importer.model_folder import model_folder
from optc.options import PLANNED, CompileOptions
from optc.options.option import with_changes
from optc.pipeline.pipeline import Pipeline
from optc.progress import Progress, no_progress
from optc.recipe import Recipe
from optc.roofline.estimate import (
    CONTEXT,
    EngineEstimate,
    EstimatingBackend,
    SpeedBound,
    estimate_json,
    speed_bound,
)
from optc.target import known_targets

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.roofline.ceilings import Ceiling

ALL = "all"


@dataclass(frozen=True)
class NodeVerdict:
    """How a backend takes the nodes of one kind.

    Attributes:
        operator: ``optc::QuantizedMatMul``; standard operators have no prefix.
        count: Nodes.
        how: As in `optc.backend.Support`.
        reason: As there.
    """

    operator: str
    count: int
    how: str
    reason: str


@dataclass(frozen=True)
class EnginePlan:
    """What one backend makes of the model for one target.

    Attributes:
        name: That its engine would have beside others.
        backend: Its backend.
        target: Its target's name.
        unavailable: Why it cannot be built on this machine; empty if it can.
        nodes: By operator, those that are not supported first.
        estimate: Weights and costs; None where the backend makes none.
        no_estimate: Why it makes none.
        kv_types: How keys and values are kept, by the type that the model asks for.
        bound: On this machine; None where it was not measured, or cannot be stated.
    """

    name: str
    backend: str
    target: str
    unavailable: str
    nodes: tuple[NodeVerdict, ...]
    estimate: EngineEstimate | None = None
    no_estimate: str = ""
    bound: SpeedBound | None = None
    kv_types: Mapping[str, Support] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Nodes by how they are taken."""
        found = Counter({"native": 0, "decomposed": 0, "unsupported": 0})
        for node in self.nodes:
            found[node.how] += node.count
        return dict(found)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "name": self.name,
            "backend": self.backend,
            "target": self.target,
            "unavailable": self.unavailable,
            "counts": self.counts,
            "nodes": [asdict(node) for node in self.nodes],
            "kv_types": {dtype: asdict(support) for dtype, support in self.kv_types.items()},
            "estimate": None if self.estimate is None else estimate_json(self.estimate),
            "no_estimate": self.no_estimate,
            "bound": None if self.bound is None else asdict(self.bound),
        }


@dataclass(frozen=True)
class Plan:
    """What a compile would make of a model.

    Attributes:
        model: Its name.
        recipe: The recipe's name.
        pipeline: Spec of the passes; where all backends are asked, for the recipe's own (its
            ``for_engines`` may give others other options).
        passes: What each did, as in the report of a compile.
        max_context: Longest sequence in tokens.
        weight_bytes: After the passes, without any backend's padding.
        kv_bytes_per_token: Of all layers, in the recipe's type.
        compile_peak_bytes: Anonymous and shared memory that a compile is predicted to reach.
        compile_peak_bytes_without_gates: The same with ``--no-gates``.
        engines: One for each backend and target.
        warnings: What the user should know.
    """

    model: str
    recipe: str
    pipeline: str
    passes: tuple[dict[str, Any], ...]
    max_context: int
    weight_bytes: int
    kv_bytes_per_token: int
    compile_peak_bytes: int
    compile_peak_bytes_without_gates: int
    engines: tuple[EnginePlan, ...]
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``optc plan --json``, without ``warnings``."""
        values = asdict(self)
        del values["warnings"]
        return {**values, "engines": [engine.to_json() for engine in self.engines]}


def plan(
    model: str | Path,
    recipe: str | Path | None = None,
    *,
    backends: str | Sequence[str] = ALL,
    ceilings: Mapping[str, Ceiling] | None = None,
    progress: Progress = no_progress,
    **changes: Any,
) -> Plan:
    """Import a model, run the recipe's passes, and ask backends how they take the result.

    Args:
        model: Folder of the model, as of `optc.compile`.
        recipe: As in `CompileOptions`; here it needs no name.
        backends: ``all`` installed ones for every target that they know, or as of `optc.compile`.
        ceilings: Of this machine, to bound the speed of engines that run here.
        progress: Told what goes on.
        **changes: Those fields of `CompileOptions` that `PLANNED` names.

    Raises:
        InputError, UnsupportedError: As of `optc.compile`, but not for nodes that a backend cannot
            take: those are in the plan.
        TypeError: There is no option of a name in ``changes``.
    """
    if recipe is not None:
        changes["recipe"] = recipe
    asked = with_changes(CompileOptions(), changes, PLANNED)
    source = model_folder(Path(model))
    whole, draft_recipe, warnings = resolve_recipe(source, asked)
    requests = _requests(backends, whole.backend)
    # all backends are as many compiles; those that are named are one, with one graph
    recipes = [
        for_engines(whole, [r] if backends == ALL else requests, asked.set) for r in requests
    ]
    main = next((i for i, r in enumerate(requests) if r.backend.name == whole.backend), 0)
    options = ResolvedOptions(
        asked, source, recipes[main], draft_recipe, Path(), requests, progress=progress
    )
    with PeakMemory() as memory:
        progress("import", 0, 0)
        from optc.importer import import_model

        imported = import_model(source, allow_remote_code=asked.allow_remote_code)
        limits = build_limits(options, imported.max_context)
        progress("passes", 0, 0)
        each = _lower_each(imported.model, recipes, options)
        present = memory.sample()
    lowered = each[main]
    passes = recipes[main].pipeline.passes
    kv_bytes = 0
    if form_type(lowered.model) is RaggedStep:
        kv_bytes = RaggedStep.of(lowered.model).kv.bytes_per_token
    return Plan(
        imported.name,
        whole.name,
        lowered.spec,
        tuple(run.to_json() for run in lowered.runs),
        limits.max_context,
        weight_bytes(lowered.model),
        kv_bytes,
        peak_bytes(lowered.reference, present, passes, gated=True),
        peak_bytes(lowered.reference, present, passes, gated=False),
        tuple(
            _engine_plan(request, mine.model, limits, ceilings)
            for request, mine in zip(requests, each, strict=True)
        ),
        (*warnings, *imported.warnings, *lowered.warnings),
    )


def _requests(backends: str | Sequence[str], default: str) -> tuple[EngineTarget, ...]:
    if backends != ALL:
        return name_engines(backends, None, default)
    found = map(registry.backend, registry.backend_names())
    targets = known_targets().values()
    pairs = [(b, target) for b in found for target in targets if not b.takes(target)]
    return tuple(EngineTarget(engine_name(*pair), *pair) for pair in pairs)


def _lower_each(
    model: ir.Model, recipes: Sequence[Recipe], options: ResolvedOptions
) -> list[Lowered]:
    """The model after the passes of each recipe; equal ones are run once."""
    found: dict[Pipeline, Lowered] = {}
    for recipe in recipes:
        if recipe.pipeline not in found:
            found[recipe.pipeline] = lower(
                model.clone(), replace(options, recipe=recipe), read=False
            )
    return [found[recipe.pipeline] for recipe in recipes]


def _engine_plan(
    request: EngineTarget,
    model: ir.Model,
    limits: BuildOptions,
    ceilings: Mapping[str, Ceiling] | None,
) -> EnginePlan:
    backend, target = request.backend, request.target
    nodes = _verdicts(backend, request, model)
    estimate, reason = None, "it cannot take every node"
    if all(node.how != "unsupported" for node in nodes):
        estimate, reason = _estimate(backend, request, model, limits)
    bound = None
    if target.name == "native" and ceilings is not None and estimate is not None:
        bound = speed_bound(estimate, min(CONTEXT, limits.max_context), ceilings)
    name = engine_name(backend, target)
    return EnginePlan(
        name,
        backend.name,
        target.name,
        backend.available(),
        nodes,
        estimate,
        reason,
        bound,
        kv_supports(request),
    )


def _verdicts(backend: Backend, request: EngineTarget, model: ir.Model) -> tuple[NodeVerdict, ...]:
    found: Counter[tuple[str, Support]] = Counter()
    for node in model.graph:
        operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        found[operator, backend.supports(node, request.target)] += 1
    order = {"unsupported": 0, "decomposed": 1, "native": 2}
    verdicts = [
        NodeVerdict(operator, count, support.how, support.reason)
        for (operator, support), count in found.items()
    ]
    return tuple(sorted(verdicts, key=lambda v: (order[v.how], v.operator, v.reason)))


def _estimate(
    backend: Backend, request: EngineTarget, model: ir.Model, limits: BuildOptions
) -> tuple[EngineEstimate | None, str]:
    if not isinstance(backend, EstimatingBackend):
        return None, f"the {backend.name} backend estimates nothing"
    try:
        return backend.estimate(model.clone(), request.target, limits), ""
    except (UnavailableError, UnsupportedError) as error:
        return None, error.render()
