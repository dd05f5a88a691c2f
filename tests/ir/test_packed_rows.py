"""The meaning of operators over packed rows, in float64 one sequence after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import pytest

from optc.ir.functions import OPERATORS, function_text, make_node
from tests.support.ragged import run

Array = npt.NDArray[Any]
LENGTHS = (3, 1, 6)
STARTS = np.cumsum([0, *LENGTHS]).astype(np.int32)
ROWS = int(STARTS[-1])


def evaluate(op_type: str, inputs: dict[str, Array], attributes: dict[str, Any]) -> Array:
    """The first output of one operator."""
    return evaluate_all(op_type, inputs, attributes)[0]


def evaluate_all(op_type: str, inputs: dict[str, Array], attributes: dict[str, Any]) -> list[Array]:
    """All outputs of one operator."""
    values = {
        name: ir.Value(
            name=name,
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            shape=ir.Shape(array.shape),
        )
        for name, array in inputs.items()
    }
    model = ir.Model(ir.Graph([], [], nodes=[], opset_imports={"": 23}, name="one"), ir_version=10)
    names = OPERATORS[op_type].input_names
    last = max(map(names.index, inputs))
    operands = [values.get(name) for name in names[: last + 1]]
    node = make_node(model, op_type, operands, attributes)
    for index, value in enumerate(node.outputs):
        value.name = f"result_{index}"
    model.graph.append(node)
    model.graph.inputs.extend(values.values())
    model.graph.outputs.extend(node.outputs)
    return run(model, inputs)


def softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(("window", "kv_heads"), [(0, 4), (2, 4), (0, 2)])
def test_attention_sees_its_own_sequence(window: int, kv_heads: int) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((ROWS, h * 8)).astype(np.float32) for h in (4, *[kv_heads] * 2))
    attributes = {"num_heads": 4, "kv_num_heads": kv_heads, "scale": 0.4, "window": window}
    found = evaluate(
        "PackedAttention",
        {"q": q, "k": k, "v": v, "query_starts": STARTS},
        {**attributes, "kv_dtype": "float32"},
    )
    wanted = np.zeros((ROWS, 4, 8))
    for start, end in pairwise(STARTS):
        for head in range(4):
            own = head * kv_heads // 4
            queries = q[start:end].reshape(-1, 4, 8)[:, head].astype(np.float64)
            keys, values = (x[start:end].reshape(-1, kv_heads, 8)[:, own] for x in (k, v))
            scores = queries @ keys.T * 0.4
            index = np.arange(end - start)
            if window:
                scores[np.abs(index[:, None] - index) >= window] = -np.inf
            wanted[start:end, head] = softmax(scores) @ values
    np.testing.assert_allclose(found, wanted.reshape(ROWS, -1), atol=2e-6)


def test_bfloat16_stands_for_rounded_numbers() -> None:
    rng = np.random.default_rng(1)
    q, k, v = rng.standard_normal((3, ROWS, 16)).astype(np.float32)
    inputs = {"q": q, "k": k, "v": v, "query_starts": STARTS}
    attributes = {"num_heads": 2, "kv_num_heads": 2, "scale": 0.3, "window": 0}
    exact = evaluate("PackedAttention", inputs, {**attributes, "kv_dtype": "float32"})
    rounded = evaluate("PackedAttention", inputs, {**attributes, "kv_dtype": "bfloat16"})
    assert 1e-5 < np.abs(exact - rounded).max() < 3e-2


@pytest.mark.parametrize("mode", ["mean", "max", "first", "last"])
def test_pooling(mode: str) -> None:
    x = np.random.default_rng(2).standard_normal((ROWS, 5)).astype(np.float32)
    found = evaluate("PoolRows", {"x": x, "query_starts": STARTS}, {"mode": mode})
    parts = [x[a:b] for a, b in pairwise(STARTS)]
    pool = {
        "mean": lambda part: part.mean(axis=0),
        "max": lambda part: part.max(axis=0),
        "first": lambda part: part[0],
        "last": lambda part: part[-1],
    }[mode]
    np.testing.assert_allclose(found, [pool(part) for part in parts], atol=1e-6)


@pytest.mark.parametrize("mode", ["mean", "max", "first"])
def test_pooling_without_first_rows(mode: str) -> None:
    x, starts = np.random.default_rng(2).standard_normal((7, 5)), np.array([0, 3, 7], np.int32)
    x = x.astype(np.float32)
    found = evaluate("PoolRows", {"x": x, "query_starts": starts}, {"mode": mode, "skip": 2})
    parts = [x[2:3], x[5:]]
    pool = {
        "mean": lambda p: p.mean(axis=0),
        "max": lambda p: p.max(axis=0),
        "first": lambda p: p[0],
    }
    np.testing.assert_allclose(found, [pool[mode](part) for part in parts], atol=1e-6)


def test_windows_of_rows() -> None:
    x = np.arange(1, 13, dtype=np.float32).reshape(6, 2)
    attributes = {"kernel": 3, "stride": 2, "before": 1, "length": 3, "windows": 2, "width": 2}
    found = evaluate("WindowRows", {"x": x}, attributes)
    np.testing.assert_array_equal(
        found,
        [
            [0, 0, 1, 2, 3, 4],
            [3, 4, 5, 6, 0, 0],
            [0, 0, 7, 8, 9, 10],
            [9, 10, 11, 12, 0, 0],
        ],
    )


def test_an_unknown_pooling_is_no_function() -> None:
    with pytest.raises(ValueError, match="median"):
        function_text("PoolRows", {"mode": "median"})
