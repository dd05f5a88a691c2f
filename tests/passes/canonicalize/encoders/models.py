"""Tiny encoders of transformers, and what they compute of padded and of packed tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
import transformers

from optc.importer.tensors.encoder import import_encoder
from optc.importer.tensors.imported import ImportedTensors
from optc.ir.forms.packed import PackedRows
from tests.support.ragged import run

Array = npt.NDArray[Any]
#: Tokens of the texts.
LENGTHS = (7, 1, 12, 4, 20)
_WORDS = 40
_SMALL = {
    "vocab_size": _WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
    **{f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "cls", "sep")},
}
_DISTILLED = {"vocab_size": _WORDS, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
_ROBERTA = {**_SMALL, "pad_token_id": 1}
#: By name: class, its configuration, and options of that.
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertModel", "BertConfig", _SMALL),
    "bert-masked-words": ("BertForMaskedLM", "BertConfig", _SMALL),
    "bert-classes": ("BertForSequenceClassification", "BertConfig", {**_SMALL, "num_labels": 3}),
    "roberta": ("RobertaModel", "RobertaConfig", _ROBERTA),
    "roberta-words": ("RobertaForTokenClassification", "RobertaConfig", _ROBERTA),
    "distilbert": ("DistilBertModel", "DistilBertConfig", _DISTILLED),
    "electra": ("ElectraModel", "ElectraConfig", {**_SMALL, "embedding_size": 16}),
    "albert": ("AlbertModel", "AlbertConfig", {**_SMALL, "embedding_size": 16}),
    "modernbert": (
        "ModernBertModel",
        "ModernBertConfig",
        {**_SMALL, "local_attention": 8, "global_attn_every_n_layers": 2},
    ),
    "nomic": ("NomicBertModel", "NomicBertConfig", _SMALL),
}


#: By name: an import takes seconds.
_IMPORTED: dict[str, ImportedTensors] = {}


def folder_of(name: str, folder: Path) -> Path:
    """A folder with a model of a family, with seeded random weights."""
    kind, config, options = FAMILIES[name]
    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, config)(**options)).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:  # biases and scales of norms that do something
            parameter.data += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return folder


def imported(name: str, folder: Path) -> ImportedTensors:
    """The model of a family as the importer gives it, which reads it once; the graph is the
    caller's own."""
    if name not in _IMPORTED:
        _IMPORTED[name] = import_encoder(folder_of(name, folder / name))
    found = _IMPORTED[name]
    return replace(found, model=found.model.clone())


def padded(found: ImportedTensors, pad: int = 0) -> dict[str, Array]:
    """Inputs of the model for texts of `LENGTHS` tokens."""
    rng, longest = np.random.default_rng(0), max(LENGTHS)
    shape = (len(LENGTHS), longest)
    mask = (np.arange(longest) < np.array(LENGTHS)[:, None]).astype(np.int64)
    given = {
        "input_ids": np.where(mask == 1, rng.integers(5, _WORDS, shape), pad),
        "attention_mask": mask,
        "token_type_ids": rng.integers(0, 2, shape),
    }
    return {one.name: given[one.name] for one in found.interface.inputs}


def packed(given: dict[str, Array]) -> dict[str, Array]:
    """The same as inputs of the form over packed rows."""
    kept = given["attention_mask"] == 1
    rows = {
        "tokens": given["input_ids"][kept],
        "positions": np.concatenate([np.arange(n) for n in LENGTHS]),
        "query_starts": np.cumsum([0, *LENGTHS]),
    }
    if "token_type_ids" in given:
        rows["token_types"] = given["token_type_ids"][kept]
    return {name: array.astype(np.int32) for name, array in rows.items()}


def unpadded(outputs: dict[str, Array], given: dict[str, Array]) -> dict[str, Array]:
    """Outputs without rows of padding."""
    mask = given["attention_mask"] == 1
    return {
        name: array[mask] if array.shape[:2] == mask.shape else array
        for name, array in outputs.items()
    }


def run_packed(model: ir.Model, given: dict[str, Array]) -> dict[str, Array]:
    """Outputs of a model over packed rows, by ONNX Runtime."""
    PackedRows.of(model)
    names = [str(value.name) for value in model.graph.outputs]
    return dict(zip(names, run(model, packed(given)), strict=True))


def largest_error(found: dict[str, Array], wanted: dict[str, Array]) -> float:
    """Largest difference of an output, over the largest value of it."""
    assert found.keys() == wanted.keys()
    assert all(found[name].shape == wanted[name].shape for name in wanted)
    return max(
        float(np.abs(found[name] - wanted[name]).max() / np.abs(wanted[name]).max())
        for name in wanted
    )
