"""An engine that rounding made larger than its source says so, once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import optc
from optc.compiling.parts.size import larger_than_source


def convolution(folder: Path, channels: int) -> Path:
    source = np.random.default_rng(0)
    shapes = [(channels, 2, 3, 3), (channels, channels, 3, 3)]
    arrays = [(0.1 * source.standard_normal(one)).astype(np.float32) for one in shapes]
    weights = [numpy_helper.from_array(one, f"w{i}") for i, one in enumerate(arrays)]
    ends = [
        helper.make_tensor_value_info("x", 1, ["n", 2, 8, 8]),
        helper.make_tensor_value_info("y", 1, ["n", channels, 4, 4]),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["h"]),
        helper.make_node("Conv", ["h", "w1"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = folder / f"net{channels}.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize(("channels", "told"), [(2, 1), (64, 0)])
def test_a_larger_engine_is_told_once(tmp_path: Path, channels: int, told: int) -> None:
    x = np.random.default_rng(1).standard_normal((4, 2, 8, 8)).astype(np.float32)
    path = convolution(tmp_path, channels)
    made = optc.compile(path, "vision-int8", tmp_path / "a", inputs=[{"x": x}], gate=["none"])
    found = [one for one in made.report()["warnings"] if "more than it saves" in one]
    assert len(found) == told


def test_equal_sizes_say_nothing() -> None:
    assert not larger_than_source(100, 100)
    assert "has 1,001 bytes and the source 1,000" in larger_than_source(1001, 1000)
