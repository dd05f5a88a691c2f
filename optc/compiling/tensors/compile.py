"""A model of one graph with named tensors to be compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from optc.artifact.manifest import TokenizerEntry
from optc.artifact.tasks.task import TARGET
from optc.artifact.tasks.tensors import TENSORS_NAME
from optc.artifact.writer import ArtifactWriter
from optc.compiling.parts.parts import Parts, PartsSource, write_tokenizer
from optc.compiling.tensors.calibration import Split, split_samples
from optc.compiling.tensors.judge import TensorsJudge, with_kept_outputs
from optc.compiling.tensors.samples import Tensors, read_samples
from optc.compiling.tensors.sentences import samples_for
from optc.importer.tensors.open import import_tensors
from optc.ir.pipeline.phase import Effect
from optc.proof.reference.tensor_samples import give_samples
from optc.runtime.tensors.classifier import IMAGES_FILE
from optc.runtime.tensors.texts import TEXTS_FILE
from optc.system.options import CompileOptions
from optc.system.sources.tensor_source import TensorSource

if TYPE_CHECKING:
    from optc.compiling.recipes.recipe import Recipe
    from optc.importer.tensors.imported import ImportedTensors


def tensors_source(model: Any, given: Mapping[str, Any], asked: CompileOptions) -> PartsSource:
    """A model of named tensors.

    Args:
        model: As of `TensorSource`.
        given: Its other attributes, and ``inputs`` to judge it by: files of NumPy (``.npz``), or
            arrays by name. None are the source's own example, or random ones, which a warning says.
        asked: Of its options those count that do not concern text.
    """
    rest = dict(given)
    inputs = [Path(one) if isinstance(one, str) else one for one in rest.pop("inputs", ())]
    source = TensorSource(model, **{name: value for name, value in rest.items() if value})
    return PartsSource(
        kind=TENSORS_NAME,
        name=source.name,
        load=lambda: _parts(import_tensors(source), inputs, asked.calibration),
        hint="optc recipes lists those for the model's task, such as tensors-fp32",
    )


def _parts(
    imported: ImportedTensors, inputs: Sequence[Path | Tensors], calibration: Path | None
) -> Parts:
    """The one graph; what its inputs are made of are files of the artifact.

    Raises:
        InputError: A sample is none.
    """
    imported = with_kept_outputs(imported)
    samples, told = samples_for(imported, inputs)
    given = [] if calibration is None else [calibration]
    learned = read_samples(given, imported.interface, imported.images)

    @cache
    def split() -> Split:
        return split_samples(samples, learned, imported.interface)

    def calibrate() -> Sequence[str]:
        give_samples(imported.model, split().calibration)
        if split().apart:
            return ()
        return (
            "ranges are found with the inputs that it is judged by: --calibration FILE.npz "
            "gives others, and 64 rows or more are divided",
        )

    def judge(recipe: Recipe) -> TensorsJudge:
        learns = recipe.pipeline.has(Effect.READS_SAMPLES)
        return TensorsJudge(imported, split().judged if learns else samples)

    def write(writer: ArtifactWriter) -> TokenizerEntry | None:
        for name, found in ((IMAGES_FILE, imported.images), (TEXTS_FILE, imported.scores)):
            if found is not None:
                folder, _, file = name.partition("/")
                (writer.subfolder(folder) / file).write_bytes(msgspec.json.encode(found))
        return write_tokenizer(writer, imported.tokenizer)

    return Parts(
        task=imported.task,
        name=imported.name,
        digest=imported.digest,
        graphs={TARGET: imported},
        judge=judge,
        write=write,
        warnings=(*imported.warnings, *told),
        calibrate=calibrate,
    )
