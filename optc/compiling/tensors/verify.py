"""``optc verify --gates`` of models of named tensors: gates that were left open by a compile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from optc.artifact.artifact import Artifact
from optc.artifact.choose import reason_against
from optc.artifact.tasks.task import TARGET
from optc.artifact.tasks.tensors import TENSORS_NAME
from optc.compiling.judging.verify_gates import (
    VerifiedGates,
    bounds_of,
    keep_verdicts,
    without_verdict,
)
from optc.compiling.parts.judging import measure_parts
from optc.compiling.tensors.judge import TensorsJudge, with_kept_outputs
from optc.compiling.tensors.sentences import samples_for
from optc.errors import InputError, UnsupportedError
from optc.runtime.executable.tensors_interface import TensorsInterface
from optc.system.hardware.machine import this_machine
from optc.system.progress import Progress, no_progress
from optc.system.sources.dim import Dim
from optc.system.sources.steady import reads_steadily, steady_so_far
from optc.system.sources.tensor_source import ONNX, TensorSource

if TYPE_CHECKING:
    from optc.importer.tensors.imported import ImportedTensors


@reads_steadily("reference")
def verify_tensor_gates(
    artifact: Artifact,
    reference: Path,
    inputs: Sequence[Path] = (),
    progress: Progress = no_progress,
) -> VerifiedGates:
    """Measure the gates without verdict of every engine that this machine can load, as
    `optc.compiling.judging.verify_gates.verify_gates` does it for generators of text.

    Args:
        artifact: Its files have been checked.
        reference: The source that was compiled: a file, a folder, or ``module:factory``.
        inputs: To judge by; none are the source's example, sentences, or random ones.
        progress: Told what goes on.

    Raises:
        InputError: The reference is not what was compiled or changed meanwhile, or an input is
            none.
        UnsupportedError: The model has several engines that work together.
        UnavailableError: An engine cannot be loaded, although the machine fits.
    """
    artifact.check_task()
    manifest, bounds = artifact.manifest, bounds_of(artifact.manifest)
    engines = without_verdict(manifest)
    if not engines:
        return VerifiedGates((), ("no gate is without a verdict",))
    if manifest.source.family != TENSORS_NAME:
        raise UnsupportedError(
            f"gates of the task {manifest.task.name!r} are measured where a model is compiled",
            where="--gates",
            hint="compile it on the machine that it is for",
        )
    progress("import", 0, 0)
    imported = _source(artifact, reference)
    samples, warnings = samples_for(imported, inputs)
    progress("gates", 0, 0)
    judge = TensorsJudge(with_kept_outputs(imported), samples)
    graphs, sets = {TARGET: imported}, [(entry, [entry]) for entry in engines]
    with TemporaryDirectory() as scratch, steady_so_far():
        originals = {TARGET: imported.model.clone()}
        where = artifact.path, Path(scratch)
        found = measure_parts(judge, bounds, graphs, originals, sets, *where)
    measured = [entry.name for entry in engines if not reason_against(entry, this_machine())]
    kept = keep_verdicts(artifact, measured, tuple(found))
    return VerifiedGates(tuple(found), (*warnings, *kept))


def _source(artifact: Artifact, reference: Path) -> ImportedTensors:
    """The source, whose dimensions may have been bounded when it was compiled."""
    from optc.importer.tensors.open import import_tensors

    found = import_tensors(TensorSource(reference))
    if found.digest != artifact.manifest.source.digest and reference.suffix == ONNX:
        found = import_tensors(TensorSource(reference, dims=_dims(artifact)))
    if found.digest != artifact.manifest.source.digest:
        raise InputError(
            f"is not what {artifact.path} was compiled from: its graph or weights are others",
            where=str(reference),
            hint="--reference names the source of the artifact",
        )
    return found


def _dims(artifact: Artifact) -> Sequence[Dim]:
    interface = artifact.manifest.engines[0].interface
    if not isinstance(interface, TensorsInterface):
        return ()
    return [Dim(name, one.least, one.most) for name, one in interface.symbols.items()]
