"""Exports every type of model by `optc export --format hf`: transformers' logits before and after.

``python -m benchmarks.families.exported [TYPE …]`` builds a tiny model of each type that the survey
proved, runs import and passes of ``fp32``, exports the weights of the graph, loads the folder with
transformers, and prints how far the logits are apart, relative to the largest.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import torch
import transformers

from benchmarks.families import models
from benchmarks.families.stages import Proof, build
from optc.artifact.manifest import Source
from optc.compiling.export.hugging_face import write_weights
from optc.compiling.export.parameters import read_parameters
from optc.compiling.export.source_class import read_class
from optc.compiling.recipes.recipe import load_recipe
from optc.errors import OptcError
from optc.importer.families.survey import read_survey
from optc.importer.import_model import import_model
from optc.importer.imported import ImportedModel
from optc.ir.pipeline.phase import Effect
from optc.ir.quantized_rows import QuantizedRows
from optc.ir.weights import LazyWeight

_PROVED = "int8 gated"


@dataclass(frozen=True)
class _GraphWeight:
    """A weight of the graph, as an engine's."""

    whole: LazyWeight

    def rows(self, shape: tuple[int, ...], experts: int = 1) -> QuantizedRows | LazyWeight:
        """The weight; it is stored without padding."""
        return self.whole


def difference(kind: str, folder: Path) -> float:
    """The largest difference of logits by the largest logit.

    Args:
        kind: The ``model_type``.
        folder: Where files may lie.

    Raises:
        OptcError: The type is not exported.
    """
    proof = Proof(kind, folder)
    build(proof)
    assert proof.model is not None
    _export(import_model(proof.source), folder / "exported")
    read, notes = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "exported",
        dtype=torch.float32,
        attn_implementation="eager",
        output_loading_info=True,
    )
    assert not [name for names in notes.values() for name in names], notes
    ids = models.tokens()
    wanted = models.logits(proof.model, ids)
    return float(np.abs(models.logits(read.eval(), ids) - wanted).max() / np.abs(wanted).max())


def _export(imported: ImportedModel, folder: Path) -> None:
    done = load_recipe("fp32").pipeline.run(imported.model)
    moved = [one.name for one in done if one.effects & Effect.MOVES_WEIGHTS and one.report.count]
    weights = {}
    for name, value in imported.model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and tensor.dtype == ir.DataType.FLOAT:
            weights[name] = _GraphWeight(_lazy(tensor, name))
    source = Source(imported.name, imported.source_digest, imported.family, imported.config)
    model = read_class(source, weights.keys(), moved)
    folder.mkdir()
    write_weights(folder, model, read_parameters(weights, model.origins, floats=True))


def _lazy(tensor: ir.TensorProtocol, name: str) -> LazyWeight:
    if isinstance(tensor, LazyWeight):
        return tensor
    array = tensor.numpy()
    return LazyWeight(lambda a, b: array[a:b], array.shape, ir.DataType.FLOAT, name)


def main(kinds: Sequence[str]) -> None:
    """Print a line for each type."""
    proved = [one.type for one in read_survey().families if _PROVED in one.stages]
    equal = 0
    for kind in kinds or proved:
        with tempfile.TemporaryDirectory() as made:
            try:
                found = difference(kind, Path(made))
            except OptcError as error:
                print(f"{kind}: refused: {error}", flush=True)
                continue
        equal += found == 0
        print(f"{kind}: {found:.1e}", flush=True)
    print(f"{equal} of {len(kinds or proved)} are equal to the bit")


if __name__ == "__main__":
    main(sys.argv[1:])
