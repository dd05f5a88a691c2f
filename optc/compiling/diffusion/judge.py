"""The gates of engines that make images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers

from optc.artifact.manifest import EngineEntry
from optc.artifact.tasks.image_generation import LATENT_DECODER, TEXT_ENCODER
from optc.artifact.tasks.task import TARGET
from optc.compiling.parts.judging import Bounds, Executables, source_of
from optc.proof.gates.measure import GateResult
from optc.proof.gates.pictures.measure import (
    STEPS,
    Expected,
    Recorded,
    expected_of,
    measure_generator,
)
from optc.runtime.diffusion.generator import ImageGenerator
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.tensors.engine import open_folder

if TYPE_CHECKING:
    from optc.importer.tensors.diffusion import ImportedDiffusion


@dataclass(frozen=True)
class DiffusionJudge:
    """Compares sets of engines with the source in PyTorch (`Judge`).

    Attributes:
        imported: With the source's own outputs.
        prompts: To judge by; a number of images where the model takes none.
    """

    imported: ImportedDiffusion
    prompts: Sequence[str] | int

    @property
    def facts(self) -> Mapping[str, Any]:
        """Of the images."""
        count = self.prompts if isinstance(self.prompts, int) else len(self.prompts)
        return {"samples": count, "steps": STEPS}

    def open(self, folder: Path, entry: EngineEntry, threads: int) -> TensorsExecutable:
        """One part."""
        return open_folder(folder, entry, threads)

    def measure(
        self, engines: Executables, baseline: Executables, bounds: Bounds, name: str
    ) -> Sequence[GateResult]:
        """Verdicts on a set."""
        both = [_generator(self.imported, one) for one in (engines, baseline)]
        return measure_generator(both[0], engines[TARGET], self._expected, both[1], bounds, name)

    @cached_property
    def _expected(self) -> Expected:
        """Of the source, which takes seconds, and is the same for all engines."""
        source = source_of(self.imported.parts)
        denoiser = Recorded(source[TARGET])
        reference = _generator(self.imported, {**source, TARGET: denoiser})
        return expected_of(reference, denoiser, self.prompts)


def _generator(imported: ImportedDiffusion, engines: Executables) -> ImageGenerator:
    known = imported.tokenizer
    return ImageGenerator(
        engines[TARGET],
        engines.get(TEXT_ENCODER),
        engines.get(LATENT_DECODER),
        imported.conventions,
        tokenizers.Tokenizer.from_str(known) if known else None,
        {},
    )
