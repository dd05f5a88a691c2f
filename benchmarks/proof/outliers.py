"""The gain of smoothing and rotation: on a model with planted outliers, and on one without any.

    python -m benchmarks.proof.outliers [--windows 60] [--only TEXT] [--json FILE]

``examples/models/pycode`` has no outliers. The planted model computes the same, but 4 of the 384
channels of each norm's result are 24 times as large, and the weights' columns that read them 24
times smaller. Each row is a model, a grid of ``quantize-weights``, and what runs before it. Stated
are mean KL divergence from the float32 model, top-1 agreement and the ratio of perplexities on
windows of held-out code; head, embedding and KV cache stay float32, and activations too, but for
W8A8.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from optc.importer.import_model import import_model
from optc.ir.graph import add_initializer
from optc.ir.pipeline import registry
from optc.ir.pipeline.base import PassReport
from optc.ir.pipeline.entries import read_pipeline
from optc.ir.quantized_rows import QuantizedPart, QuantizedRows, dequantize_rows
from optc.ir.weights import LazyWeight
from optc.passes.quantize.folding.fold import fold
from optc.passes.quantize.folding.places import NORM, find_places
from optc.proof.conversations.tokens import token_stream
from optc.proof.gates.divergence import RowDivergence, summarize
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.calibration import CalibrationStore
from optc.proof.reference.text import cut_windows, read_documents
from optc.system.hardware.target import usable_threads

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/models/pycode"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
TEXT = ROOT / "examples/text/code_heldout.jsonl"
OUTLIERS, FACTOR = 4, 24.0
GRIDS: dict[str, dict[str, Any]] = {
    "W8A8": {"bits": 8},
    "int4 g64": {"bits": 4, "group_size": 64, "symmetric": False},
    "int4 g32, integer scales": {
        "bits": 4,
        "group_size": 32,
        "symmetric": False,
        "group_scales": "int",
    },
}
READ = {"text": str(CALIBRATION), "folder": str(MODEL), "windows": 64}
CALIBRATE = {"calibrate": {**READ, "hessians": True, "channels": True}}
AWQ, SMOOTHQUANT = {"smooth": {"method": "awq"}}, {"smooth": {"method": "smoothquant"}}
#: What runs before quantize-weights, and its method.
METHODS: dict[str, tuple[tuple[Any, ...], str]] = {
    "round": ((), "round"),
    "smoothquant": ((CALIBRATE, SMOOTHQUANT), "round"),
    "awq": ((CALIBRATE, AWQ), "round"),
    "rotate": (("rotate",), "round"),
    "gptq": ((CALIBRATE,), "gptq"),
    "awq, gptq": ((CALIBRATE, AWQ), "gptq"),
    "rotate, gptq": (("rotate", CALIBRATE), "gptq"),
}
LAYERS_ONLY = {"head": False, "embedding": False}


class Models:
    """Quantized models of one kind; what they have in common is made once."""

    def __init__(self, dense: ir.Model) -> None:
        self._dense = dense
        self._begun: dict[tuple[str, ...], ir.Model] = {}

    def float32(self, method: str) -> ir.Model:
        """The model behind passes that leave its function as it is."""
        return self._behind(tuple(filter(None, [method]))).clone()

    def quantized(self, grid: str, method: str) -> ir.Model:
        """The dense form behind the passes of a method; activations stay float but for W8A8."""
        before, rounding = METHODS[method]
        last = {"quantize-weights": {**GRIDS[grid], **LAYERS_ONLY, "method": rounding}}
        pipeline = read_pipeline([*before, last], registry)
        pipeline.validate()
        names = [one.name for one in pipeline.passes]
        common = tuple(name for name in names[:2] if name in ("rotate", "calibrate"))
        model = self._behind(common).clone()
        for index in range(len(common), len(names)):
            pipeline.passes[index].run(model, pipeline.context_of(index))
        if grid != "W8A8":
            _only_weights(model)
        return model

    def _behind(self, names: tuple[str, ...]) -> ir.Model:
        """The model behind some first passes."""
        if not names:
            return self._dense
        if names not in self._begun:
            model = self._behind(names[:-1]).clone()
            entry = CALIBRATE if names[-1] == "calibrate" else names[-1]
            read_pipeline([entry], registry).run(model)
            self._begun[names] = model
        return self._begun[names]


def plant(model: ir.Model) -> ir.Model:
    """The model, some channels of each norm's result larger, and the weights that read them
    smaller."""
    rng = np.random.default_rng(0)
    for place in find_places(model, PassReport()):
        if place.kind == NORM:
            scale = np.ones(len(place.channels))
            scale[rng.choice(len(scale), OUTLIERS, replace=False)] = 1 / FACTOR
            fold(place, scale, CalibrationStore())
    return model


def _near(whole: QuantizedRows, start: int, stop: int) -> npt.NDArray[np.float32]:
    return dequantize_rows(whole.read(start, stop), whole.group_size)


def _only_weights(model: ir.Model) -> None:
    """Matmuls of float inputs with what the quantized weights stand for."""
    for node in [node for node in model.graph if node.op_type == "QuantizedMatMul"]:
        rounded, values = node.inputs[0], node.inputs[2]
        quantize = None if rounded is None else rounded.producer()
        part = None if values is None else values.const_value
        assert quantize is not None
        assert isinstance(part, QuantizedPart)
        whole = part.whole
        weight = LazyWeight(
            partial(_near, whole),
            (whole.rows, whole.columns),
            ir.DataType.FLOAT,
            whole.name,
            transposed=True,
        )
        operands = [quantize.inputs[0], add_initializer(model.graph, weight, f"{whole.name}.near")]
        new = ir.Node("", "MatMul", operands, name=node.name)
        new.outputs[0].type, new.outputs[0].shape = node.outputs[0].type, node.outputs[0].shape
        new.outputs[0].name, node.outputs[0].name = node.outputs[0].name, f"{node.name}.old"
        model.graph.insert_before(node, [new])
        node.outputs[0].replace_all_uses_with(new.outputs[0])
        model.graph.remove(node, safe=True)


class Judge:
    """Compares models with the original on the held-out windows."""

    def __init__(self, original: ir.Model, count: int) -> None:
        stream = token_stream(read_documents(TEXT), MODEL / "tokenizer.json", 0, 1)
        windows = cut_windows(stream, 512, count, start=0)
        self._tokens, self._targets = windows[:, :-1].copy(), windows[:, 1:].ravel()
        self._original = BlockwiseReference(original, usable_threads())

    def figures(self, model: ir.Model) -> dict[str, float]:
        """Mean KL divergence in nats a token, and top-1 agreement."""
        other, parts = BlockwiseReference(model, usable_threads()), []
        hidden = [one.hidden_states(self._tokens) for one in (self._original, other)]
        for at in range(0, len(self._targets), 2048):
            rows = slice(at, at + 2048)
            scores = RowDivergence(self._targets[rows])
            for tiles in zip(self._original.tiles(), other.tiles(), strict=True):
                both = (self._original, other)
                z, y = (
                    one.logits(h[rows], tile)
                    for one, h, tile in zip(both, hidden, tiles, strict=True)
                )
                scores.add(z, y, tiles[0].start)
            parts.append(scores.result())
        found = summarize(parts)
        other.close()
        return {
            "kl_mean": found.kl_mean,
            "top1_agreement": found.top1_agreement,
            "perplexity_ratio": found.perplexity_ratio,
        }


def rows(only: str, windows: int) -> Iterator[dict[str, Any]]:
    """All measurements, those whose name holds ``only``."""
    dense = import_model(MODEL).model
    read_pipeline(["canonicalize"], registry).run(dense)
    judge = Judge(dense, windows)
    for kind in ("planted", "plain"):
        models = Models(plant(dense.clone()) if kind == "planted" else dense)
        for grid, method in [
            (one, method) for one in ("float32", *GRIDS) for method in _methods(one)
        ]:
            name = {"model": kind, "grid": grid, "method": method}
            if only in ", ".join(name.values()):
                float32 = grid == "float32"
                model = models.float32(method) if float32 else models.quantized(grid, method)
                yield name | judge.figures(model)


def _methods(grid: str) -> list[str]:
    """Those for few bits are not for 8, and those for activations not for float ones."""
    if grid == "float32":
        return ["", "rotate"]
    if grid == "W8A8":
        return ["round", "smoothquant", "rotate"]
    return [method for method in METHODS if method != "smoothquant"]


def main() -> None:
    """Measure all and print a line for each."""
    parser = argparse.ArgumentParser(prog="benchmarks.proof.outliers", description=__doc__)
    parser.add_argument("--windows", type=int, default=60, help="of 512 tokens")
    parser.add_argument("--only", default="", help="those whose model, grid, method hold this")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = []
    for row in rows(args.only, args.windows):
        found.append(row)
        print(json.dumps(row), flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
