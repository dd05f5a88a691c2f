"""``optc plan``: the engines that backends would make of a model, before anything is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from optc import registry
from optc.compiling.building.built_engine import weight_readers
from optc.compiling.lowering.lowering import Lowered, lower
from optc.compiling.predictions.artifact_size import artifact_bytes
from optc.compiling.predictions.compile_time import compile_seconds
from optc.compiling.predictions.engine_plan import EnginePlan, engine_plan
from optc.compiling.recipes.recipe import Recipe
from optc.compiling.resolving.engines import EngineTarget, engine_name, name_engines
from optc.compiling.resolving.limits import peak_bytes, weight_bytes
from optc.compiling.resolving.memory import PeakMemory
from optc.compiling.resolving.options import ResolvedOptions, build_limits, for_engines
from optc.compiling.resolving.preflight_tokenizer import check_tokenizer_files, without_tokenizer
from optc.compiling.resolving.recipe_options import resolve_recipe, with_local_files
from optc.compiling.stages.generation import generation_settings
from optc.importer.hub import local_model
from optc.importer.model_folder import model_folder
from optc.ir.forms.find import form_type
from optc.ir.forms.ragged import RaggedStep
from optc.ir.pipeline.pipeline import Pipeline
from optc.runtime.kv.kv_plan import sequence_bytes
from optc.system.hardware.machine import this_machine
from optc.system.hardware.target import Target, known_targets
from optc.system.notebook.tables import plan_html
from optc.system.options import PLANNED, CompileOptions
from optc.system.options.keywords import PlanChanges
from optc.system.options.option import with_changes
from optc.system.progress import Progress, no_progress, telling
from optc.system.units import parse_memory

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.backend import BuildOptions
    from optc.importer.imported import ImportedModel
    from optc.proof.roofline.ceilings import Ceiling

ALL = "all"
#: The same for this machine alone.
HERE = "here"
#: Each engine by itself, as many compiles would make them.
_EACH = (ALL, HERE)


@dataclass(frozen=True)
class Plan:
    """The predicted result of a compile.

    Attributes:
        model: Its name.
        recipe: The recipe's name.
        pipeline: Spec of the passes; where all backends are asked, for the recipe's own (its
            ``for_engines`` may give others other options).
        passes: What each did, as in the report of a compile.
        max_context: Longest sequence in tokens.
        weight_bytes: After the passes, without any backend's padding.
        kv_bytes_per_token: Of all layers, in the recipe's type.
        kv_bytes_beyond_windows: Those of them that a token needs for as long as its sequence runs.
        compile_peak_bytes: Anonymous and shared memory that a compile is predicted to reach.
        compile_peak_bytes_without_gates: The same with ``--no-gates``.
        engines: One for each backend and target.
        artifact_bytes: Of an artifact with the engine of the recipe's backend for the target
            ``native``, or of the first that is asked for; None where nothing is known of it.
        compile_seconds: By stage of a compile of it, roughly, by measured rates
            (`optc.compiling.predictions.compile_time`), where nothing else runs and no kernel lies
            in the user's cache; empty where nothing is known.
        compile_seconds_again: The same where all kernels do: of a repeated compile.
        kv_bytes_per_sequence: Most memory that a sequence of ``max_context`` tokens holds while it
            decodes, in blocks of the usual size: of recurrent states and short convolutions too.
        warnings: What the user should know.
    """

    model: str
    recipe: str
    pipeline: str
    passes: tuple[dict[str, Any], ...]
    max_context: int
    weight_bytes: int
    kv_bytes_per_token: int
    kv_bytes_beyond_windows: int
    compile_peak_bytes: int
    compile_peak_bytes_without_gates: int
    engines: tuple[EnginePlan, ...]
    artifact_bytes: int | None = None
    compile_seconds: Mapping[str, float] = field(default_factory=dict)
    compile_seconds_again: Mapping[str, float] = field(default_factory=dict)
    kv_bytes_per_sequence: int = 0
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The JSON object of ``optc plan --json``, without ``warnings``."""
        values = asdict(self)
        del values["warnings"]
        return {**values, "engines": [engine.to_json() for engine in self.engines]}

    def __repr__(self) -> str:
        return f"<optc.Plan of {self.model}, {self.recipe}: {len(self.engines)} engines>"

    def _repr_html_(self) -> str:
        return plan_html(self.to_json())


def plan(
    model: str | Path,
    recipe: str | Path | None = None,
    *,
    backends: str | Sequence[str] = HERE,
    ceilings: Mapping[str, Ceiling] | None = None,
    resident_memory: str | int | None = None,
    progress: Progress = no_progress,
    **changes: Unpack[PlanChanges],
) -> Plan:
    """Import a model, run the recipe's passes, and ask backends how they take the result.

    Args:
        model: Folder of the model, as of `optc.compile`.
        recipe: As in `CompileOptions`; here it needs no name.
        backends: ``here`` are all installed ones for this machine, its CUDA devices included;
            ``all`` the same for every target that they know; else as of `optc.compile`.
        ceilings: Of this machine, to bound the speed of engines that run here.
        resident_memory: Memory for weights, as of `optc.load`: tells what the others cost.
        progress: Told what goes on.
        **changes: Those fields of `CompileOptions` that `PLANNED` names.

    Raises:
        InputError, UnsupportedError: As of `optc.compile`, but not for nodes that a backend cannot
            take: those are in the plan.
        TypeError: There is no option of a name in ``changes``.
    """
    stated = {} if recipe is None else {"recipe": recipe}
    resident = None
    if resident_memory is not None:
        resident = parse_memory(resident_memory, "resident_memory")
    asked = with_changes(CompileOptions(), {**changes, **stated}, PLANNED)
    with telling(progress):
        given = local_model(model, code=asked.allow_remote_code, progress=progress)
        source = model_folder(given, base=asked.base, code=asked.allow_remote_code)
    check_tokenizer_files(source)
    asked = with_local_files(asked, progress)
    whole, draft_recipe, warnings = resolve_recipe(source, asked)
    requests = _requests(backends, whole.backend)
    # all backends are as many compiles; those that are named are one, with one graph
    recipes = [
        for_engines(whole, [r] if backends in _EACH else requests, asked.set) for r in requests
    ]
    main = _main(requests, whole.backend)
    options = ResolvedOptions(
        asked, source, recipes[main], draft_recipe, Path(), requests, progress=progress
    )
    imported, limits, each, present, imported_peak = _import_and_lower(options, recipes)
    lowered = each[main]
    passes = recipes[main].pipeline.passes
    one = () if backends in _EACH else requests  # the engines of one artifact
    engines = tuple(
        engine_plan(
            r, own.model, replace(limits, readers=weight_readers(one, r)), ceilings, resident
        )
        for r, own in zip(requests, each, strict=True)
    )
    estimate = engines[main].estimate if engines else None
    token, beyond, sequence = _kv_bytes(lowered.model, limits.max_context)
    first, again = _seconds(lowered, recipes[main], estimate.compile_s if estimate else 0.0)
    return Plan(
        imported.name,
        whole.name,
        lowered.spec,
        tuple(run.to_json() for run in lowered.runs),
        limits.max_context,
        weight_bytes(lowered.model),
        token,
        beyond,
        max(imported_peak, peak_bytes(lowered.reference, present, passes, gated=True)),
        max(imported_peak, peak_bytes(lowered.reference, present, passes, gated=False)),
        engines,
        None if estimate is None else artifact_bytes(estimate, imported.tokenizer_files),
        first,
        again,
        sequence,
        (
            *warnings,
            *without_tokenizer(source),
            *imported.warnings,
            *generation_settings(imported).warnings,
            *lowered.warnings,
        ),
    )


def _seconds(
    lowered: Lowered, recipe: Recipe, kernel_s: float
) -> tuple[dict[str, float], dict[str, float]]:
    """By stage, of a first compile and of a repeated one; nothing where no kernel is compiled."""
    if not kernel_s:
        return {}, {}
    dense, passes = lowered.reference, recipe.pipeline.passes
    return compile_seconds(dense, passes, kernel_s), compile_seconds(dense, passes, 0.0)


def _import_and_lower(
    options: ResolvedOptions, recipes: Sequence[Recipe]
) -> tuple[ImportedModel, BuildOptions, list[Lowered], int, int]:
    """The model, its limits, what each recipe makes of it, the memory that is taken then, and the
    most of it that an import took."""
    with PeakMemory() as memory, telling(options.progress):
        options.progress("import", 0, 0)
        from optc.importer.import_model import import_model

        allowed = options.asked.allow_remote_code
        imported = import_model(options.source, allow_remote_code=allowed)
        limits = build_limits(options, imported.max_context)
        memory.sample()
        peak = memory.peak_bytes
        options.progress("passes", 0, 0)
        each = _lower_each(imported.model, recipes, options)
        return imported, limits, each, memory.sample(), peak


def _kv_bytes(model: ir.Model, context: int) -> tuple[int, int, int]:
    """Of a token in all layers, beyond windows, and of a sequence; 0 where they are not paged."""
    if form_type(model) is not RaggedStep:
        return 0, 0, 0
    kv = RaggedStep.of(model).kv
    whole = sequence_bytes(kv.groups, kv.layers, context)
    return kv.bytes_per_token, kv.bytes_beyond_windows, whole


def _requests(backends: str | Sequence[str], default: str) -> tuple[EngineTarget, ...]:
    if backends not in _EACH:
        return name_engines(backends, None, default)
    found = map(registry.backend, registry.backend_names())
    targets = known_targets().values() if backends == ALL else _targets_here()
    pairs = [(b, target) for b in found for target in targets if not b.takes(target)]
    return tuple(EngineTarget(engine_name(*pair), *pair) for pair in pairs)


def _targets_here() -> tuple[Target, ...]:
    """``native``, and the best target of each CUDA device of this machine."""
    here, known = this_machine(), known_targets()
    cuda = [target for target in known.values() if target.kind == "cuda"]
    best = {
        device: target
        for device in here.sm
        for target in cuda  # ascending
        if not replace(here, sm=(device,)).misfit(target)
    }
    return (known["native"], *dict.fromkeys(best.values()))


def _main(requests: Sequence[EngineTarget], backend: str) -> int:
    """Index of the engine of the recipe's backend, for this machine if that is among them."""
    own = [i for i, one in enumerate(requests) if one.backend.name == backend]
    here = [i for i in own if requests[i].target.name == "native"]
    return next(iter((*here, *own)), 0)


def _lower_each(
    model: ir.Model, recipes: Sequence[Recipe], options: ResolvedOptions
) -> list[Lowered]:
    """The model after the passes of each recipe; equal ones are run once."""
    found: dict[Pipeline, Lowered] = {}
    for recipe in recipes:
        if recipe.pipeline not in found:
            found[recipe.pipeline] = lower(model.clone(), replace(options, recipe=recipe), dry=True)
    return [found[recipe.pipeline] for recipe in recipes]
