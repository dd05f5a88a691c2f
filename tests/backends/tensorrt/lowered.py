"""Run models in the dialect on ONNX Runtime's CPU provider, the one oracle that all can use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from optc.ir.pipeline import registry as pass_registry
from tests.support.families import FUSED, model_after
from tests.support.models import Dense

Array = npt.NDArray[Any]
#: Tokens of a slot.
LENGTH = 32


def session(model: ir.Model | Path) -> ort.InferenceSession:
    """A session that does not quantize activations which the model does not quantize."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    source = str(model) if isinstance(model, Path) else ir.to_proto(model).SerializeToString()
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run(model: ir.Model | Path, feeds: Mapping[str, Array]) -> list[Array]:
    """Outputs for ``feeds``; floats are given in the type that each input has."""
    opened = session(model)
    kinds = {"tensor(float16)": np.float16, "tensor(float)": np.float32}
    typed = {
        one.name: feeds[one.name].astype(kinds.get(one.type, feeds[one.name].dtype))
        for one in opened.get_inputs()
    }
    results: list[Array] = opened.run(None, typed)
    return results


def step_feeds(
    model: ir.Model,
    lengths: Sequence[int],
    rows: int,
    vocabulary: int,
    capacity: int,
    seed: int = 0,
) -> dict[str, Array]:
    """Inputs of one step in slot form: ``rows`` new tokens behind ``lengths`` of each slot, whose
    caches hold anything; logits of the first and the last row are wanted."""
    rng = np.random.default_rng(seed)
    batch = len(lengths)
    starts = np.array(lengths, np.int64)
    feeds: dict[str, Array] = {
        "tokens": rng.integers(0, vocabulary, (batch, rows)).astype(np.int32),
        "positions": (starts[:, None] + np.arange(rows)).astype(np.int32),
        "write_indices": starts,
        "logit_index": np.array([[0, rows - 1]] * batch, np.int64),
    }
    sizes = {"B": batch, "Smax": capacity}
    for value in model.graph.inputs:
        if str(value.name).startswith("past_") and value.shape is not None:
            shape = [dim if isinstance(dim, int) else sizes[str(dim)] for dim in value.shape]
            feeds[str(value.name)] = 0.5 * rng.standard_normal(shape).astype(np.float32)
    return feeds


def ragged(shape: Dense, more: str = "") -> ir.Model:
    """A ragged step of a tiny model, ``more`` passes behind the usual ones."""
    return model_after(FUSED + more, shape)


def slot_form(model: ir.Model) -> ir.Model:
    """The slot form of a ragged step, which legalization must keep the meaning of."""
    reference = model.clone()
    pass_registry.passes()["kv-slots"]().run(reference)
    return reference


def operators(model: ir.Model) -> list[str]:
    """Operators in order."""
    return [node.op_type for node in model.graph]
