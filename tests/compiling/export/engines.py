"""Artifacts whose engine gives its weights back, as quantize-weights left them in the graph."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
import transformers
from msgspec import to_builtins

from optc.artifact.artifact import Artifact
from optc.artifact.files import EngineFiles
from optc.artifact.manifest import EngineEntry
from optc.ir.engine_weights import EngineWeight
from optc.ir.quantized_rows import QuantizedPart, QuantizedRows
from optc.ir.weights import LazyWeight
from optc.passes.numerics.affine import quantized_rows
from optc.passes.numerics.scheme import Scheme
from tests.artifact.toy import forge, list_files
from tests.compiling.export.pass_entries import pass_entry
from tests.runtime.support.artifacts import ToyBackend, write_artifact

#: Tokens of the artifact's tokenizer, one a byte.
VOCABULARY = 259
#: Passes that merge and quantize weights.
CANONICALIZE = "canonicalize"
PASSES = "canonicalize,fuse-qkv,fuse-gate-up,quantize-weights"


@dataclass(frozen=True)
class GraphWeight:
    """A weight of the graph."""

    whole: QuantizedRows | LazyWeight

    def rows(self, shape: tuple[int, ...], experts: int = 1) -> QuantizedRows | LazyWeight:
        whole = self.whole
        found = (
            (whole.rows, whole.columns) if isinstance(whole, QuantizedRows) else whole.rows_shape
        )
        assert found == shape
        return whole


class GivingBackend(ToyBackend):
    """The toy, with weights."""

    def __init__(self, weights: Mapping[str, EngineWeight]) -> None:
        super().__init__()
        self.weights = dict(weights)

    def engine_weights(self, engine: EngineEntry, files: EngineFiles) -> Mapping[str, EngineWeight]:
        return self.weights


def weights_of(model: ir.Model) -> dict[str, EngineWeight]:
    """The weights by the names that engines have for them."""
    found: dict[str, EngineWeight] = {}
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if isinstance(tensor, QuantizedPart):
            if name.endswith(".quantized"):
                found[name] = GraphWeight(tensor.whole)
        elif isinstance(tensor, LazyWeight):
            found[name] = GraphWeight(tensor)
        elif tensor is not None and tensor.dtype == ir.DataType.FLOAT:
            found[name] = GraphWeight(_as_read(name, tensor.numpy()))
    return found


def weights_of_class(
    model: transformers.PreTrainedModel, scheme: Scheme
) -> dict[str, EngineWeight]:
    """The parameters of a class, matrices on the grid of ``scheme``, rows of experts below each
    other. From now on they are the model's own."""
    found: dict[str, EngineWeight] = {}
    for name, parameter in model.named_parameters():
        array = parameter.detach().numpy()
        if array.ndim == 1:
            found[name] = GraphWeight(_as_read(name, array))
            continue
        rows = quantized_rows(_as_read(name, array.reshape(-1, array.shape[-1])), scheme, name)
        taken = rows.floats(0, rows.rows).reshape(array.shape)
        found[f"{name}.quantized"] = GraphWeight(rows)
        parameter.data = torch.from_numpy(taken)
    return found


def _as_read(name: str, array: Any) -> LazyWeight:
    return LazyWeight(lambda a, b: array[a:b], array.shape, ir.DataType.FLOAT, name)


def write_giving(
    folder: Path, config: Mapping[str, Any], passes: str = PASSES, **how: Any
) -> Artifact:
    """An artifact of a model with ``config``, made by ``passes``; GGUF has a name for its
    tokenizer."""
    write_artifact(folder, **how)
    file = folder / "tokenizer/tokenizer.json"
    if file.is_file():
        stated = json.loads(file.read_text())
        stated["pre_tokenizer"]["use_regex"] = True
        # readers of GGUF take a tokenizer without merges for one of another kind
        vocabulary = stated["model"]["vocab"]
        vocabulary["ab"] = vocabulary.pop(max(vocabulary, key=vocabulary.__getitem__))
        stated["model"]["merges"] = [["a", "b"]]
        file.write_text(json.dumps(stated))
    list_files(folder)
    done = [to_builtins(pass_entry(name)) for name in re.findall(r"[a-z-]+(?:{[^}]*})?", passes)]
    forge(folder, lambda value: value["source"].update(config=dict(config)))
    forge(folder, lambda value: value.update(passes=done))
    return Artifact.open(folder)
