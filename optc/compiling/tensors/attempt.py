"""A compile of an imported model of named tensors by one recipe: passes, build, gates, artifact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import TOKENIZER_FILE, TokenizerEntry
from optc.artifact.writer import ArtifactWriter
from optc.compiling.building.built_engine import TARGET, BuiltEngine
from optc.compiling.judging.judge import Judgement
from optc.compiling.ladder.measured.options import check_gates
from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.resolving.engines import parse_engines
from optc.compiling.tensors.assemble import Identity
from optc.compiling.tensors.calibration import split_samples
from optc.compiling.tensors.judge import judge_tensors
from optc.compiling.tensors.samples import Tensors, read_samples
from optc.compiling.tensors.sentences import samples_for
from optc.compiling.tensors.size import folder_bytes, larger_than_source, model_bytes
from optc.compiling.tensors.stages import Stages
from optc.errors import UnsupportedError
from optc.ir.pipeline.phase import Effect, Phase
from optc.proof.reference.tensor_samples import give_samples
from optc.runtime.tensors.classifier import IMAGES_FILE
from optc.runtime.tensors.texts import TEXTS_FILE
from optc.system.progress import telling

if TYPE_CHECKING:
    import onnx_ir as ir

    from optc.importer.tensors.imported import ImportedTensors
    from optc.ir.pipeline.record import PassRecord


@dataclass
class TensorsAttempt:
    """The stages behind the import, in order, and what they leave for the report.

    Args:
        stages: Of this recipe.
        imported: The model, which is changed.
        given: The user's samples.
    """

    stages: Stages
    imported: ImportedTensors
    given: Sequence[Path | Tensors]
    warnings: list[str] = field(default_factory=list)
    runs: Sequence[PassRecord] = ()
    built: Sequence[BuiltEngine] = ()
    _samples: Sequence[Tensors] = ()
    _original: ir.Model | None = None
    _judgement: Judgement | None = None

    @property
    def writer(self) -> ArtifactWriter:
        """Of the artifact, or of a folder of its own."""
        return self.stages.writer

    @writer.setter
    def writer(self, other: ArtifactWriter) -> None:
        self.stages.writer = other

    def build(self) -> None:
        """Samples, passes and engines."""
        check_gates(self.stages.asked.gate, self.imported.task)
        self.warnings += self.imported.warnings
        self._samples = self._judged_by()
        self._original = self.imported.model.clone()
        with self.stages.timed("passes"), telling(self.stages.progress):
            try:
                self.runs = self.stages.run_passes(self.imported.model, self.imported.task)
            except UnsupportedError as error:
                if not self.stages.recipe.otherwise or self.stages.asked.backend:
                    raise
                self.warnings.append(self._turn(error))
                self.imported = replace(self.imported, model=self._original.clone())
                self.runs = self.stages.run_passes(self.imported.model, self.imported.task)
        with self.stages.timed("build"):
            self.built = [
                self.stages.build_engine(self.imported, request, request.name, TARGET)
                for request in self.stages.engines
            ]

    def judge(self) -> Judgement:
        """The gates of all engines."""
        if self._original is None:
            raise RuntimeError("nothing is built yet")
        with self.stages.timed("gates"):
            self._judgement = judge_tensors(
                self.stages.recipe,
                self.imported,
                self._original,
                self._samples,
                self.built,
                self.writer,
                self.stages.asked,
            )
        return self._judgement

    def finish(self, **more: Any) -> Artifact:
        """The artifact, with ``more`` in its report; raises as `Stages.commit`."""
        if self._judgement is None:
            raise RuntimeError("nothing is judged yet")
        found = self.imported
        tokenizer = self._tokenizer(found.tokenizer)
        if found.images is not None:
            path = self.writer.subfolder("images").parent / IMAGES_FILE
            path.write_bytes(msgspec.json.encode(found.images))
        if found.scores is not None:
            path = self.writer.subfolder("texts").parent / TEXTS_FILE
            path.write_bytes(msgspec.json.encode(found.scores))
        self.warnings += self._sizes()
        identity = Identity.of_tensors(found)
        made = (self.runs, self.built, self._judgement, self.warnings)
        return self.stages.commit(identity, tokenizer, *made, **more)

    def _sizes(self) -> list[str]:
        """One warning where rounding made an engine larger than what it was made of."""
        rounds = any(one.phase is Phase.ROUNDING for one in self.stages.recipe.pipeline.passes)
        if not rounds or self._original is None or not self.built:
            return []
        folders = [self.writer.folder / one.entry.folder for one in self.built]
        least = min(folder_bytes(one) for one in folders)
        told = larger_than_source(least, model_bytes(self._original))
        return [told] if told else []

    def _judged_by(self) -> Sequence[Tensors]:
        """The samples that judge; those that calibrate are given to the model."""
        found = self.imported
        samples, told = samples_for(found, self.given)
        self.warnings += told
        calibration = self.stages.asked.calibration
        given = [] if calibration is None else [calibration]
        split = split_samples(
            samples, read_samples(given, found.interface, found.images), found.interface
        )
        if not self.stages.recipe.pipeline.has(Effect.READS_SAMPLES):
            return samples
        give_samples(found.model, split.calibration)
        if not split.apart:
            self.warnings.append(
                "ranges are found with the inputs that it is judged by: --calibration FILE.npz "
                "gives others, and 64 rows or more are divided"
            )
        return split.judged

    def _turn(self, error: UnsupportedError) -> str:
        """Go on with the recipe's other one; what the user should know of that."""
        stages, asked = self.stages, self.stages.asked
        before = stages.recipe.name
        stages.recipe = load_recipe(stages.recipe.otherwise, sets=asked.set, gates=asked.gate)
        stages.engines = parse_engines(None, asked.target, stages.recipe.backend)
        return (
            f"recipe {before} does not take this model ({error.where}: {error.message}): "
            f"{stages.recipe.name} does, and is what was compiled"
        )

    def _tokenizer(self, content: str) -> TokenizerEntry | None:
        """Write the tokenizer of a model of texts."""
        if not content:
            return None
        (self.writer.subfolder("tokenizer") / "tokenizer.json").write_text(content, "utf-8")
        return TokenizerEntry((TOKENIZER_FILE,), None, (), add_bos=False)
