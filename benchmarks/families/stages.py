"""Proofs of a type, stage after stage; each needs the one before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
from transformers import PreTrainedModel

import optc
from benchmarks.families import models
from benchmarks.families.int8_loss import ALLOWED, int8_loss
from benchmarks.families.tiny import layer_kinds, missing_kinds, tiny_config
from optc import registry
from optc.compiling.recipes.recipe import load_recipe
from optc.errors import OptcError, UnsupportedError
from optc.importer.import_model import import_model
from optc.importer.imported import ImportedModel
from optc.passes.canonicalize.canonicalize import Canonicalize
from optc.system.hardware.target import parse_target

#: Largest difference of logits relative to the largest, of float32 arithmetic in another order.
TOLERANCE = 1e-4
#: Backends whose answer to every node is recorded, with a target of each.
ENGINES = {"tvm": "native", "onnxruntime": "native", "tensorrt": "sm_89", "tvm-cuda": "sm_90"}


@dataclass
class Proof:
    """The findings about one type so far.

    Attributes:
        kind: The ``model_type``.
        folder: Where its files may lie.
        found: The JSON that is reported.
        sets: Options of passes (``pass.option=value``) that the recipes get.
    """

    kind: str
    folder: Path
    sets: Sequence[str] = ()
    found: dict[str, Any] = field(default_factory=dict)
    model: PreTrainedModel | None = None
    imported: ImportedModel | None = None
    dense: ir.Model | None = None

    @property
    def source(self) -> Path:
        """The folder of the tiny model."""
        return self.folder / "model"


def build(proof: Proof) -> None:
    """A tiny model is built, with every kind of layer, and saved.

    Raises:
        UnsupportedError: The tiny configuration lost a kind of layer.
    """
    config = tiny_config(proof.kind)
    lost = missing_kinds(proof.kind, config)
    if lost:
        raise UnsupportedError(
            f"the tiny configuration has no layer of {', '.join(lost)}", where=proof.kind
        )
    proof.found["layers"] = layer_kinds(config)
    proof.model = models.build(config)
    proof.found["class"] = type(proof.model).__name__
    models.save(proof.model, proof.source)


def imported(proof: Proof) -> None:
    """The folder is imported."""
    proof.imported = import_model(proof.source)


def canonical(proof: Proof) -> None:
    """The graph is in the dense form."""
    assert proof.imported is not None
    proof.dense = proof.imported.model.clone()
    Canonicalize().run(proof.dense)


def reference_equal(proof: Proof) -> None:
    """The dense form gives transformers' logits in ONNX Runtime.

    Raises:
        UnsupportedError: They differ.
    """
    assert proof.model is not None
    assert proof.dense is not None
    ids = models.tokens()
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
    content = ir.to_proto(proof.dense).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    found = session.run(None, {"input_ids": ids, "position_ids": positions})[0]
    expected = models.logits(proof.model, ids)
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    proof.found["error"] = error
    if not error < TOLERANCE:
        raise UnsupportedError(f"logits differ by {error:.1e} of the largest", where=proof.kind)


def planned(proof: Proof) -> None:
    """The passes of fp32 run through, as an engine wants them, and TVM has code for every node.

    Raises:
        UnsupportedError: It has not; names the operators.
    """
    assert proof.imported is not None
    source = proof.imported.model
    refused = {
        name: _refused(source.clone(), name, target, proof.sets) for name, target in ENGINES.items()
    }
    proof.found["engines"] = [name for name, reasons in refused.items() if not reasons]
    if refused["tvm"]:
        raise UnsupportedError("; ".join(refused["tvm"]), where="tvm backend")


def _refused(model: ir.Model, name: str, target: str, sets: Sequence[str]) -> list[str]:
    """Nodes that a backend has no code for: each operator with the reason of its first."""
    backend = registry.step_backend(name)
    kinds, chosen = {name, parse_target(target).kind}, [text.partition("=")[0] for text in sets]
    load_recipe("fp32", sets=sets).for_kinds(kinds, chosen).pipeline.run(model)
    found: dict[str, str] = {}
    for node in model.graph:
        support = backend.supports(node, parse_target(target))
        if support.how == "unsupported":
            found.setdefault(node.op_type, support.reason)
    return [f"{op}: {reason}" for op, reason in found.items()]


def tokens_equal(proof: Proof) -> None:
    """TVM's float32 engine gives transformers' greedy tokens.

    Raises:
        UnsupportedError: It gives others.
    """
    assert proof.model is not None
    artifact = optc.compile(
        proof.source, "fp32", proof.folder / "fp32", set=list(proof.sets), no_gates=True
    )
    with optc.load(artifact.path, kv_memory="4MiB") as engine:
        sampling = optc.SamplingParams(temperature=0, max_tokens=models.NEW_TOKENS, ignore_eos=True)
        results = engine.generate(models.prompts(), sampling)
    for prompt, result in zip(models.prompts(), results, strict=True):
        expected = models.greedy(proof.model, prompt)
        if list(result.token_ids) != expected:
            pairs = zip(result.token_ids, expected, strict=True)
            first = next(i for i, (a, b) in enumerate(pairs) if a != b)
            raise UnsupportedError(f"greedy token {first + 1} differs", where=proof.kind)


def int8_gated(proof: Proof) -> None:
    """int8-fused compiles, and loses what a fake quantization loses.

    Raises:
        UnsupportedError: It loses more than `ALLOWED` times that.
    """
    assert proof.model is not None
    # the fake quantization beside it rotates nothing, and rounds to the nearest
    plain = ["rotate-kv.block=0", "rotate-activations.block=0", "quantize-weights.method=round"]
    artifact = optc.compile(
        proof.source, "int8-fused", proof.folder / "int8", set=[*plain, *proof.sets], no_gates=True
    )
    loss = int8_loss(proof.model, artifact.path)
    proof.found.update(loss)
    if not loss["int8_ratio"] <= ALLOWED:
        raise UnsupportedError(
            f"KL of int8-fused is {loss['int8_kl']:.1e}, {loss['int8_ratio']:.2f} times that of a "
            "fake quantization",
            where=proof.kind,
        )


#: Stages by name, in order, and the function that proves each.
STAGES: dict[str, Callable[[Proof], None]] = {
    "built": build,
    "imported": imported,
    "canonical": canonical,
    "reference equal": reference_equal,
    "planned": planned,
    "tokens equal": tokens_equal,
    "int8 gated": int8_gated,
}
_FLOAT = tuple(STAGES)[:-1]
_BEFORE_INT8 = _FLOAT[-1]


def prove(
    kind: str,
    last: str,
    folder: Path,
    keep: Callable[[dict[str, Any]], object],
    known: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
) -> None:
    """Go through the stages up to ``last`` until one does not hold.

    Args:
        kind: The ``model_type``.
        last: Name of the last stage.
        folder: Empty, for files.
        keep: Told what is known after each stage: stages that hold, and why the next does not.
        known: What was told of the type before; where only `int8_gated` is left to do, what holds
            is taken from there. That stage needs the model and no result of another.
        sets: Of `Proof`.
    """
    proof = Proof(kind, folder, sets)
    proof.found = {"stages": [], "reason": ""}
    stages = dict(STAGES)
    if known is not None and _BEFORE_INT8 in known["stages"]:
        held = [one for one in known["stages"] if one in _FLOAT]
        proof.found |= {**known, "stages": held, "reason": ""}
        stages = {name: stages[name] for name in ("built", "int8 gated")}
    for name, stage in stages.items():
        proof.found["trying"] = name
        keep(proof.found)
        try:
            stage(proof)
        except OptcError as error:
            proof.found["reason"] = reason_of(error).replace(str(proof.source), "the model")
            break
        if name not in proof.found["stages"]:
            proof.found["stages"].append(name)
        if name == last:
            break
    del proof.found["trying"]
    keep(proof.found)


def reason_of(error: OptcError) -> str:
    """The place and the reason of an error, in one line."""
    text = error.to_json()
    return f"{text['where']}: {text['message']}" if text["where"] else str(text["message"])
