"""The gates of engines of named tensors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optc.artifact.manifest import EngineEntry
from optc.artifact.tasks.task import TARGET
from optc.compiling.parts.judging import Bounds, Executables
from optc.compiling.tensors.other_sizes import check_sizes
from optc.errors import EngineError, InputError
from optc.proof.gates.measure import GateResult
from optc.proof.gates.tensors.measure import Run, measure_tensors
from optc.proof.gates.tensors.padding import unpadded
from optc.runtime.tensors.engine import open_folder

if TYPE_CHECKING:
    from optc.importer.tensors.imported import ImportedTensors
    from optc.runtime.executable.tensors import TensorsExecutable

Array = npt.NDArray[Any]
Tensors = Mapping[str, Array]
#: So many samples are tried before all others: more take long where a model embeds sentences.
_CHECKED = 8


@dataclass(frozen=True)
class TensorsJudge:
    """Compares engines with the source, or else with the graph as imported in float32
    (`optc.compiling.parts.judging.Judge`).

    Attributes:
        imported: With the source's own outputs, if it can give them.
        samples: Inputs.
    """

    imported: ImportedTensors
    samples: Sequence[Tensors]

    @property
    def facts(self) -> Mapping[str, Any]:
        """Of the samples."""
        known = self.imported.reference is not None
        reference = "source" if known else "float32 graph in ONNX Runtime"
        return {"samples": len(self.samples), "reference": reference}

    def open(self, folder: Path, entry: EngineEntry, threads: int) -> TensorsExecutable:
        """The engine."""
        return open_folder(folder, entry, threads)

    def measure(
        self, engines: Executables, baseline: Executables, bounds: Bounds, name: str
    ) -> Sequence[GateResult]:
        """Verdicts on one engine.

        Raises:
            InputError: The model itself does not take a sample.
            UnsupportedError: Its graph and its source differ at other sizes than the example's.
        """
        original, padding = baseline[TARGET], self.imported.padding
        _check_samples(original, self.samples[:_CHECKED])
        check_sizes(self.imported, original.run)
        reference = self.imported.reference or KeptOutputs(original.run)
        return measure_tensors(
            unpadded(engines[TARGET].run, padding),
            unpadded(reference, padding),
            unpadded(original.run, padding),
            self.samples,
            bounds,
            name,
            self.imported.task,
        )


def _check_samples(baseline: TensorsExecutable, samples: Sequence[Tensors]) -> None:
    """Refuse samples that the model itself does not take, such as images of an odd size.

    Raises:
        InputError: One is none.
    """
    for index, sample in enumerate(samples):
        try:
            baseline.run(sample)
        except EngineError as error:
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in sample.items())
            raise InputError(
                f"the model does not take sample {index} ({shapes}): {error.message}",
                where="--inputs",
                hint="--inputs FILE.npz gives inputs that it takes; --dim NAME=LEAST..MOST bounds "
                "the sizes of a dimension",
            ) from error


class KeptOutputs:
    """Outputs for samples, each computed once, however often its engines are judged."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._found: dict[bytes, Tensors] = {}

    def __call__(self, sample: Tensors) -> Tensors:
        """Outputs for a sample."""
        key = hashlib.blake2b()
        for name, array in sorted(sample.items()):
            key.update(f"{name} {array.dtype} {array.shape}\n".encode())
            key.update(np.ascontiguousarray(array).data)
        found = key.digest()
        if found not in self._found:
            self._found[found] = self._run(sample)
        return self._found[found]


def with_kept_outputs(imported: ImportedTensors) -> ImportedTensors:
    """The model with a source, if it has one, that computes each sample once: that takes as long as
    all engines."""
    run = imported.reference
    return imported if run is None else replace(imported, reference=KeptOutputs(run))
