"""`quantize-convolutions`: the graph before and after, its integers, and ONNX Runtime's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from optc.errors import InputError
from optc.ir.forms.batched import BatchedTensors
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.general.quantize_convolutions import QuantizeConvolutions
from optc.proof.reference.tensor_samples import give_samples
from tests.support.ir_text import f32, model_of, nodes_text
from tests.support.ragged import run, run_exactly

HEAD = "g (float[N,4,8,8] x) => (float[N,{}] y)"
WEIGHTS = {"a": f32(6, 4, 3, 3), "ab": f32(6, seed=1), "b": f32(6, 6, 3, 3, seed=2)}


def stated(text: str, body: str, weights: Mapping[str, np.ndarray]) -> ir.Model:
    model = model_of(text, body, dict(weights))
    BatchedTensors.describe(model).attach(model)
    give_samples(model, [{"x": f32(4, 4, 8, 8, seed=seed)} for seed in (3, 4)])
    return model


def rounded(model: ir.Model, **options: Any) -> dict[str, int]:
    (record,) = Pipeline((QuantizeConvolutions(**options),)).run(model)
    return record.report.details


def kernels(model: ir.Model, folder: Path) -> list[str]:
    """Operators of the graph as ONNX Runtime runs it."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    content = ir.to_proto(model).SerializeToString()
    onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node]


def test_the_text_before_and_after() -> None:
    model = stated(
        "g (float[N,4,8,8] x) => (float[N,6,6,6] y)",
        "c = Conv (x, a, ab)\n y = Relu (c)",
        WEIGHTS,
    )
    assert rounded(model, rounding="nearest") == {"Conv": 1, "operators between": 0}
    lines = nodes_text(model).splitlines()
    assert [line.partition(" = ")[2].partition(" ")[0] for line in lines] == [
        *("QuantizeLinear", "DequantizeLinear"),
        *("DequantizeLinear", "DequantizeLinear"),  # weight and bias
        *("Conv", "QuantizeLinear", "DequantizeLinear"),
    ]
    assert model.graph.outputs[0].name == "y"
    stored = {name: value.const_value for name, value in model.graph.initializers.items()}
    weight, scale = (stored[f"c.weight_{kind}"] for kind in ("integers", "scale"))
    assert weight is not None
    assert scale is not None
    np.testing.assert_allclose(scale.numpy(), np.abs(WEIGHTS["a"]).max((1, 2, 3)) / 127)
    back = weight.numpy() * scale.numpy()[:, None, None, None]
    assert np.abs(back - WEIGHTS["a"]).max() <= scale.numpy().max() / 2 + 1e-6


def grid(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Values of a range in 255 steps (ONNX, QuantizeLinear), in float64."""
    step = np.float32((high - low) / 255)
    zero = np.clip(np.rint(-low / step), 0, 255)
    found: np.ndarray = (np.clip(np.rint(x / step) + zero, 0, 255) - zero) * np.float64(step)
    return found


def test_the_numbers_are_those_of_an_oracle() -> None:
    """PyTorch computes in float64 with values and weights that are rounded apart."""
    model = stated(
        "g (float[N,4,8,8] x) => (float[N,6,6,6] y)",
        "c = Conv (x, a, ab)\n y = Relu (c)",
        WEIGHTS,
    )
    seen = np.concatenate([f32(4, 4, 8, 8, seed=seed) for seed in (3, 4)])
    scale = np.abs(WEIGHTS["a"]).max((1, 2, 3), keepdims=True) / 127
    weight = np.rint(WEIGHTS["a"] / scale) * scale

    def conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        parts = (torch.from_numpy(np.asarray(one, np.float64)) for one in (x, w, WEIGHTS["ab"]))
        found: np.ndarray = torch.nn.functional.conv2d(*parts).relu().numpy()
        return found

    top = float(conv(seen, WEIGHTS["a"]).max())
    rounded(model, method="min-max", rounding="nearest")
    x = f32(3, 4, 8, 8, seed=9) * 2  # beyond the range, too
    wanted = grid(conv(grid(x, float(seen.min()), float(seen.max())), weight), 0.0, top)
    (found,) = run_exactly(model, {"x": x})
    assert np.abs(found - wanted).max() <= top / 255 * 1.01  # a step, where it lay between two
    assert np.mean(np.abs(found - wanted) > 1e-5) < 0.01


NETS = {
    "residual": (
        "c = Conv <pads = [1,1,1,1]> (x, a, ab)\n r = Relu (c)\n"
        "d = Conv <pads = [1,1,1,1]> (r, b)\n s = Add (d, r)\n t = Relu (s)\n"
        "p = GlobalAveragePool (t)\n f = Flatten (p)\n y = Gemm (f, h, hb)",
        ["QLinearConv", "QLinearConv", "QLinearAdd", "QLinearGlobalAveragePool", "QGemm"],
    ),
    "depthwise, clipped, pooled": (
        "c = Conv <group = 6> (e, w)\n r = Clip (c, zero, six)\n"
        "m = MaxPool <kernel_shape = [2,2]> (r)\n k = Concat <axis = 1> (m, m)\n"
        "v = AveragePool <kernel_shape = [2,2]> (k)\n f = Flatten (v)\n y = MatMul (f, g)",
        ["QLinearConv"] * 2
        + ["MaxPool", "QLinearConcat", "QLinearAveragePool", "MatMulIntegerToFloat"],
    ),
}


@pytest.mark.parametrize("net", NETS)
def test_onnx_runtime_runs_integer_kernels(net: str, tmp_path: Path) -> None:
    body, wanted = NETS[net]
    weights = {**WEIGHTS, "h": f32(6, 3, seed=5), "hb": f32(3, seed=6)}
    if "group" in body:
        body = f"e = Conv (x, a, ab)\n {body}"
        weights |= {"w": f32(6, 1, 3, 3, seed=7), "g": f32(48, 5, seed=8)}
        weights |= {"zero": np.array(0, np.float32), "six": np.array(6, np.float32)}
    width = weights["g"].shape[1] if "g" in weights else 3
    model = stated(HEAD.format(width), body, weights)
    x = f32(4, 4, 8, 8, seed=3)
    (before,) = run(model, {"x": x})
    rounded(model)
    (after,) = run_exactly(model, {"x": x})
    assert np.linalg.norm(after - before) < 0.05 * np.linalg.norm(before)
    found = kernels(model, tmp_path)
    assert sorted(kind for kind in found if kind in wanted) == sorted(wanted)
    assert not {"Conv", "Relu", "Clip", "Add", "Gemm", "MatMul"} & set(found)
    assert "DequantizeLinear" not in found  # nothing is turned to floats before the head


def test_what_no_product_reads_is_not_rounded() -> None:
    """Means of channels as scores: 8 bits of them would tie."""
    model = stated(
        HEAD.format(6), "c = Conv (x, a, ab)\n p = GlobalAveragePool (c)\n y = Flatten (p)", WEIGHTS
    )
    assert rounded(model) == {"Conv": 1, "operators between": 0}
    assert nodes_text(model).splitlines()[-1] == "y = Flatten (p)"


def test_first_and_sums_stay_float_if_asked() -> None:
    body, _ = NETS["residual"]
    weights = {**WEIGHTS, "h": f32(6, 3, seed=5), "hb": f32(3, seed=6)}
    model = stated(HEAD.format(3), body, weights)
    assert rounded(model, first="float", sums="float") == {"Conv": 1, "operators between": 0}
    text = nodes_text(model)
    assert "Conv <pads: ints = [1, 1, 1, 1]> (x, a, ab)" in text
    assert "s = Add (" in text
    assert ", r)" in text  # the sum reads what is not rounded


def test_columns_make_good_for_each_other() -> None:
    """On correlated inputs the error of outputs falls below that of rounding to the nearest."""
    shared = f32(16, 1, 8, 8, seed=1)
    x = shared + 0.1 * f32(16, 4, 8, 8, seed=2)
    error = {}
    for rounding in ("nearest", "gptq"):
        model = stated("g (float[N,4,8,8] x) => (float[N,6,6,6] y)", "y = Conv (x, a, ab)", WEIGHTS)
        give_samples(model, [{"x": x}])
        (before,) = run(model, {"x": x})
        scale = {"rounding": rounding, "method": "min-max", "bits": 7}
        rounded(model, **scale)
        (after,) = run(model, {"x": x})
        error[rounding] = float(np.linalg.norm(after - before))
    assert error["gptq"] < 0.95 * error["nearest"]


@pytest.mark.parametrize("method", ["min-max", "percentile", "mse", "entropy"])
@pytest.mark.parametrize("activations", ["u8", "s8"])
def test_every_method_and_type(method: str, activations: str) -> None:
    model = stated("g (float[N,4,8,8] x) => (float[N,6,6,6] y)", "y = Conv (x, a, ab)", WEIGHTS)
    x = f32(4, 4, 8, 8, seed=3)
    (before,) = run(model, {"x": x})
    rounded(model, method=method, activations=activations)
    (after,) = run(model, {"x": x})
    assert np.linalg.norm(after - before) < 0.03 * np.linalg.norm(before)


@pytest.mark.parametrize(
    ("weight", "attributes"),
    [
        ((6, 4, 3), "strides = [2], pads = [1,1]"),
        ((6, 2, 3), "group = 2, dilations = [2]"),
        ((6, 4, 1), ""),
    ],
)
def test_windows_are_those_of_the_convolution(weight: tuple[int, ...], attributes: str) -> None:
    """Windows times the weight are the convolution's outputs, all of them."""
    from optc.passes.general.weight_rounding import windows

    w = f32(*weight)
    stated_attributes = f"<{attributes}> " if attributes else ""
    model = model_of(
        "g (float[2,4,9] x) => (float[2,6,L] y)", f"y = Conv {stated_attributes}(x, w)", {"w": w}
    )
    x = f32(2, 4, 9, seed=5)
    (wanted,) = run(model, {"x": x})
    (node,) = model.graph
    seen = windows(node, x, np.random.default_rng(0))
    rows = w.reshape(len(seen), -1, seen.shape[-1])
    found = np.concatenate([a @ b.T for a, b in zip(seen, rows, strict=True)], axis=1)
    np.testing.assert_allclose(
        found, wanted.transpose(0, 2, 1).reshape(-1, 6), rtol=1e-4, atol=1e-5
    )


def test_what_cannot_be_done_is_told() -> None:
    for option in ({"method": "best"}, {"bits": 4}, {"activations": "i4"}, {"rounding": "up"}):
        with pytest.raises(InputError, match="is not possible"):
            QuantizeConvolutions(**option)
    model = stated("g (float[N,4,8,8] x) => (float[N,6,6,6] y)", "y = Conv (x, a, ab)", WEIGHTS)
    give_samples(model, [])
    with pytest.raises(InputError, match="no inputs to find ranges with"):
        rounded(model)
