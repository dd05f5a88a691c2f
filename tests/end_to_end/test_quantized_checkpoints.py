"""Checkpoints that are quantized already say what their own readers make of them, in few bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader

from optc import SamplingParams, load
from tests.importer.quantized.files import (
    Array,
    Float32,
    gptq_layer,
    pack_quantized_layer,
    write,
)
from tests.support.checkpoints.gguf_files import of_kind, write_llama
from tests.support.checkpoints.own_reader import (
    PROMPTS,
    PYCODE,
    continuations,
    quantized,
    same_tokens,
)
from tests.support.cost.command import optc

FLOATS = "int4 groups of 32 asymmetric by floats as given"
#: What becomes of the weights of each type with `int8-fused`.
GGUF = {
    Kind.Q4_0: {"int4 groups of 32 as given": 24, "int8 groups of 32 as given": 1},
    Kind.Q8_0: {"int8 groups of 32 as given": 25},
    Kind.Q4_1: {FLOATS: 24, "int8 groups of 32 as given": 1},
    # blocks of 256 do not divide rows of 384, which converters then write as Q5_0
    Kind.Q4_K: {"int8 groups of 32 as given": 19, FLOATS: 6},
}
KEPT = {Kind.Q4_0: "int4 groups of 32 as given", Kind.Q4_1: FLOATS}
SHARED = {"embedding shares the head": 1}


def kinds(*given: Kind, short: Kind) -> list[Any]:
    """Types of GGUF, all of which but one take part in `make test-long` alone: the others' blocks
    are read alike, with scales or with minimums."""
    marks = {kind: [] if kind is short else [pytest.mark.long] for kind in given}
    return [pytest.param(kind, marks=marks[kind], id=kind.name) for kind in given]


@pytest.mark.parametrize("kind", kinds(*GGUF, short=Kind.Q4_K))
def test_gguf(kind: Kind, tmp_path: Path) -> None:
    file = write_llama(PYCODE, tmp_path / "pycode.gguf", of_kind(kind))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=file.name, dtype=torch.float32
    )
    model, report = quantized(file)
    assert report.details == {**GGUF[kind], **SHARED}
    assert not [node for node in model.graph if node.op_type == "MatMul"], "a layer stays float"
    assert [one for one in report.warnings if "again" in one] == []
    assert same_tokens(model, continuations(theirs))


def compressed(rows: Float32) -> tuple[dict[str, Array], Float32]:
    return pack_quantized_layer(rows, 128, 4, symmetric=True)


def gptq(rows: Float32) -> tuple[dict[str, Array], Float32]:
    return gptq_layer(rows, 64, 4, symmetric=False)


#: How a layer is written, the config's settings, and what becomes of the weights.
LAYERS: dict[str, tuple[Any, dict[str, Any], dict[str, int]]] = {
    "compressed-tensors": (
        compressed,
        {"format": "pack-quantized"},
        {"int4 groups of 128 as given": 24, "int8 per channel": 1},
    ),
    "gptq": (
        gptq,
        {"bits": 4, "group_size": 64, "sym": False, "desc_act": False},
        {"int4 groups of 64 asymmetric as given": 24, "int8 per channel": 1},
    ),
}


#: Second prompts with which no two tokens are nearly as likely (`PROMPTS`).
OTHER = {"compressed-tensors": "try:\n    import", "gptq": PROMPTS[1]}


@pytest.mark.parametrize("method", LAYERS)
def test_safetensors(method: str, tmp_path: Path) -> None:
    """Linear layers but the tied head are quantized, as by the tools that write these."""
    make, settings, details = LAYERS[method]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(PYCODE, dtype=torch.float32)
    tensors: dict[str, Array] = {}
    for name, parameter in theirs.named_parameters():
        rows = parameter.detach().numpy()
        if rows.ndim == 1 or "embed" in name:
            tensors[name] = rows
            continue
        parts, weight = make(rows)
        tensors |= {f"{name.removesuffix('.weight')}.{end}": one for end, one in parts.items()}
        parameter.data = torch.from_numpy(weight)
    config = json.loads((PYCODE / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, **settings}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write(tmp_path / "model.safetensors", tensors)
    model, report = quantized(tmp_path)
    assert report.details == {**details, **SHARED}
    assert report.warnings == []
    assert same_tokens(model, continuations(theirs, (PROMPTS[0], OTHER[method])))


@pytest.mark.parametrize("kind", kinds(Kind.Q4_0, Kind.Q4_1, short=Kind.Q4_0))
def test_the_command_compiles_a_gguf_file(kind: Kind, tmp_path: Path) -> None:
    """The smaller example, for TVM: weights of 4 bits, and the tokens of its own reader."""
    source = PYCODE.with_name("pycode-draft")
    write_llama(source, tmp_path / "small.gguf", of_kind(kind))
    output = tmp_path / "artifact"
    plain = ("--set", "rotate-kv.block=0", "--set", "rotate-activations.block=0")  # to export it
    given = (tmp_path / "small.gguf", "--recipe", "int8-fused", "-o", output, "--no-gates")
    optc("compile", *given, *plain)
    report = json.loads((output / "report.json").read_text())
    (done,) = (one for one in report["passes"] if one["name"] == "quantize-weights")
    assert done["details"][KEPT[kind]] == 8
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="small.gguf", dtype=torch.float32
    )
    ((whole, length),) = continuations(theirs, PROMPTS[:1])
    greedy = SamplingParams(max_tokens=len(whole) - length, temperature=0)
    with load(output) as engine:
        (found,) = engine.generate([PROMPTS[0]], greedy)
    assert list(found.token_ids) == whole[length:]
    exported_is_the_source(output, tmp_path / "small.gguf", tmp_path / "exported", kind)


def exported_is_the_source(artifact: Path, source: Path, folder: Path, kind: Kind) -> None:
    """Exports of the artifact: the source's blocks, bit for bit, and its weights and tokens."""
    folder.mkdir()
    optc("export", artifact, "--format", "gguf", "-o", folder / "again.gguf")
    ours, theirs = (gguf_tensors(file) for file in (folder / "again.gguf", source))
    assert ours.keys() == theirs.keys()
    for name, (stored, data) in theirs.items():
        assert ours[name][0] == stored, name
        np.testing.assert_array_equal(ours[name][1], data, name)
    models = [
        transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype=torch.float32
        )
        for file in (folder / "again.gguf", source)
    ]
    assert continuations(models[0], PROMPTS[:1]) == continuations(models[1], PROMPTS[:1])
    optc("export", artifact, "--format", "compressed-tensors", "-o", folder / "packed")
    model, report = quantized(folder / "packed")
    # float zero points have no place there: such weights are written as floats
    packed = (
        {KEPT[kind]: 8, "int8 per channel": 1} if kind == Kind.Q4_0 else {"int8 per channel": 9}
    )
    assert report.details == {**packed, **SHARED}
    assert same_tokens(model, continuations(models[1], PROMPTS[:1]))


def gguf_tensors(file: Path) -> dict[str, tuple[Kind, Array]]:
    return {one.name: (one.tensor_type, one.data) for one in GGUFReader(file).tensors}
