"""The recipe's passes over an imported model, and the reference kept from before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from optc.compiling.resolving.limits import check_passes
from optc.compiling.resolving.options import ResolvedOptions
from optc.errors import InputError
from optc.ir.forms.decoder import Dense
from optc.ir.pipeline import registry
from optc.ir.pipeline.base import Pass
from optc.ir.pipeline.instruments import Instrument, dump_to
from optc.ir.pipeline.phase import Effect, Phase
from optc.ir.pipeline.pipeline import Pipeline
from optc.ir.pipeline.record import PassRecord, warnings_of
from optc.proof.reference.calibration import calibration_of, own_calibration
from optc.system.processes.process_memory import give_back_freed
from optc.system.progress import telling


def dense_pipeline(*more: Pass) -> Pipeline:
    """The pipeline to the dense form, which is what gates compare with, and ``more`` passes."""
    return Pipeline((registry.leading_to(Dense)(), *more))


@dataclass(frozen=True)
class Lowered:
    """A model after its passes.

    Attributes:
        model: What the backend builds.
        reference: The dense form before any pass changed what is computed; its weights are the
            same lazy ones, so that it costs only its graph.
        runs: What each pass did, in order.
        spec: The pipeline as text, with what passes settled for later ones.
        stages: The model after each pass that comes behind the dense form, by the pass's name, if
            they were asked for; only their graphs take memory.
    """

    model: ir.Model
    reference: ir.Model
    runs: tuple[PassRecord, ...]
    spec: str
    stages: tuple[tuple[str, ir.Model], ...] = ()

    @property
    def read_text(self) -> bool:
        """True if a pass that wants a text had something to learn from it."""
        reports = [run.report for run in self.runs if run.effects & Effect.READS_TEXT]
        return any(report.facts.get("tokens") != 0 for report in reports)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of passes, also about what they should have found and did not."""
        return warnings_of(self.runs)


def lower(model: ir.Model, options: ResolvedOptions, *, dry: bool = False) -> Lowered:
    """Run the recipe's passes on ``model``, in place; if ``dry``, as far as its graph and
    the sizes of its weights go, and without a text.

    Raises:
        InputError: A pass's precondition does not hold, or the dump folder cannot be written.
        UnsupportedError: Something is not recognized, or a required pass found nothing.
    """
    pipeline, leading = _pipeline(options)
    kept = [model.clone()] if leading == 0 else []

    def keep(record: PassRecord, current: ir.Model) -> None:
        if record.index == leading - 1:
            calibration_of(current)  # from now on the clone's, too: parts of it are lowered alike
            kept.append(current.clone())
            check_passes(current, pipeline.passes[leading:], options.max_ram_bytes)

    def tell(record: PassRecord, current: ir.Model) -> None:
        options.progress("passes", record.index + 1, len(pipeline.passes))
        give_back_freed()  # what the pass took, before the next one takes more

    stages: list[tuple[str, ir.Model]] = []

    def keep_stage(record: PassRecord, current: ir.Model) -> None:
        if record.index >= leading and record.report.count:
            stages.append((record.name, current.clone()))

    instruments: list[Instrument] = [keep, tell]
    if options.asked.bisect:
        instruments.append(keep_stage)
    if options.asked.dump_dir is not None:
        instruments.append(dump_to(options.asked.dump_dir))
    with telling(options.progress):
        runs = pipeline.run(model, instruments, dry=dry)
    return Lowered(model, kept[0], tuple(runs), pipeline.settled(runs).spec(), tuple(stages))


def lower_dense(
    model: ir.Model, options: ResolvedOptions, whole: Sequence[PassRecord]
) -> tuple[PassRecord, ...]:
    """Run those passes on ``model``, some layers of a `Lowered.reference`, that it has not seen, in
    place; what they settled in ``whole``, the runs on all layers, stays.

    Raises:
        UnsupportedError: Something is not recognized, or a required pass found nothing.
    """
    own_calibration(model)  # of the whole model, whose weights may still be read
    pipeline, leading = _pipeline(options)
    passes = pipeline.settled(whole).passes[leading:]
    rest = replace(pipeline, passes=tuple(one.for_part(model) for one in passes))
    return tuple(rest.run(model, []))


def lower_again(model: ir.Model, options: ResolvedOptions, *, dry: bool = False) -> Lowered:
    """Run those passes of another recipe on ``model``, a copy of a `Lowered.reference`, that it has
    not seen, in place; if ``dry``, as far as its graph and the sizes of its weights go.

    Raises:
        InputError: A pass's precondition does not hold, or it is predicted to need more memory than
            is allowed.
        UnsupportedError: Something is not recognized, or a required pass found nothing.
    """
    pipeline, leading = _pipeline(options)
    reference, passes = model.clone(), pipeline.passes[leading:]
    check_passes(model, passes, options.max_ram_bytes)
    rest = replace(pipeline, passes=tuple(one.for_part(model) for one in passes))
    with telling(options.progress):
        runs = rest.run(model, [], dry=dry)
    return Lowered(model, reference, tuple(runs), rest.settled(runs).spec())


def _pipeline(options: ResolvedOptions) -> tuple[Pipeline, int]:
    """The recipe's pipeline, and how many of its first passes lead to the dense form, with the
    vocabulary that is wanted."""
    pipeline = options.recipe.pipeline
    leading = pipeline.behind(Phase.VOCABULARY)
    rest = pipeline.passes[leading:]
    late = next((one.name for one in rest if one.has(Effect.REMOVES_TOKENS)), None)
    if late is not None:
        raise InputError(
            f"pass {late} comes behind {rest[0].name}, and gates would compare other tokens",
            where=f"recipe {options.recipe.name}",
            hint=f"put it directly behind {registry.leading_to(Dense).name}",
        )
    return pipeline, leading
