"""docs/how-to/add-an-operator.md: an operator is its body; backends take it by and by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc import registry
from optc.backends.tvm.lowering.lower_model import HANDLERS, lower_model
from optc.backends.tvm.lowering.walk import Handler, Lowering, rows_of, width_of
from optc.errors import UnsupportedError
from optc.ir.functions import OPERATORS, make_node
from optc.ir.functions.operator import Attributes, Operator, literal
from optc.system.hardware.target import parse_target
from tests.backends.onnxruntime.engines import OPTIONS, Driver
from tests.support.families import FUSED, model_after
from tests.support.ir_text import f32, model_of
from tests.support.models import Dense
from tests.support.ragged import RaggedDriver, run

CPU, GPU = parse_target("x86-64-v3"), parse_target("cuda:sm_90")
KEY = ("optc", "Times")


def body(attributes: Attributes, present: frozenset[str]) -> str:
    return f"""f = Constant <value_float: float = {literal(float(attributes["factor"]))}> ()
        y = Mul (x, f)"""


#: Step 1: the body.
TIMES = Operator("Times", ("x",), ("y: float",), {"factor": float}, body)


def lower_times(lowering: Lowering, node: ir.Node) -> None:
    """Step 3: the lowering, here to a kernel that there is."""
    x = lowering.tensor(node.inputs[0])
    width = width_of(x)
    factor = node.attributes.get_float("factor", 1.0)
    config = {"operation": "scale", "width": width, "constant": factor}
    shape = [("float32", (rows_of(x), width))]
    lowering.tensors[node.outputs[0]] = lowering.call("elementwise", config, [x], shape)[0]


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATORS, TIMES.name, TIMES)  # type: ignore[misc]


def step_with_times(factor: float) -> ir.Model:
    """A ragged step whose logits go through the operator."""
    model = model_after(FUSED, Dense())
    logits = model.graph.outputs[0]
    assert logits.shape is not None
    node = make_node(
        model,
        "Times",
        [logits],
        {"factor": factor},
        outputs=["scaled"],
        shapes=[list(logits.shape)],
        name="the.node",
    )
    model.graph.append(node)
    logits.name, node.outputs[0].name = "plain", "logits"
    model.graph.outputs[0] = node.outputs[0]
    return model


@pytest.mark.usefixtures("operator")
def test_its_body_runs_in_onnx_runtime() -> None:
    model = model_of(
        "g (float[S,8] x) => (float[S,8] y)",
        "y = optc.Times <factor: float = 3.0> (x)",
    )
    x = f32(5, 8)
    np.testing.assert_array_equal(run(model, {"x": x})[0], x * np.float32(3))
    plain = RaggedDriver(model_after(FUSED, Dense())).step({0: [3, 5, 7]})
    np.testing.assert_allclose(RaggedDriver(step_with_times(2.0)).step({0: [3, 5, 7]}), 2 * plain)


@pytest.mark.usefixtures("operator")
def test_backends_without_a_lowering_name_it(tmp_path: Path) -> None:
    model = step_with_times(2.0)
    node = next(node for node in model.graph if node.op_type == "Times")
    for name, target in (("tvm", CPU), ("tvm-cuda", GPU)):
        support = registry.backend(name).supports(node, target)
        assert support.reason == "operator optc::Times has no kernel"
    tensorrt = registry.backend("tensorrt")
    assert tensorrt.supports(node, GPU).reason == "Times has no form in TensorRT's operators"
    with pytest.raises(UnsupportedError) as caught:
        lower_model(model, CPU, OPTIONS)
    assert caught.value.message == (
        "1 nodes cannot be lowered: the.node (Times): operator optc::Times has no kernel"
    )


@pytest.mark.usefixtures("operator")
def test_onnx_runtime_needs_no_lowering(tmp_path: Path) -> None:
    """Its engines run the body."""
    onnxruntime = registry.backend("onnxruntime")
    logits = []
    for factor in (1.0, 2.0):
        folder = tmp_path / str(factor)
        folder.mkdir()
        built = onnxruntime.build(step_with_times(factor), CPU, folder, OPTIONS)
        engine = onnxruntime.load(folder, built.spec, built.backend_data, threads=1)
        logits.append(Driver(engine).step({0: [3, 5, 7]}, {0: 0}))  # type: ignore[arg-type]
    np.testing.assert_allclose(logits[1], 2 * logits[0], rtol=1e-6)


@pytest.mark.usefixtures("operator")
def test_with_a_handler_the_backend_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = step_with_times(2.0)
    node = next(node for node in model.graph if node.op_type == "Times")
    monkeypatch.setitem(HANDLERS, KEY, Handler(lower_times))
    assert registry.backend("tvm").supports(node, CPU).how == "native"
    last = lower_model(model, CPU, OPTIONS).program.functions[0].calls[-1]
    assert (last.kernel, last.config["constant"]) == ("elementwise", 2.0)


def test_without_it_nothing_is_left() -> None:
    assert TIMES.name not in OPERATORS
    assert KEY not in HANDLERS
    with pytest.raises(KeyError, match="Times"):
        model_of("g (float[S,8] x) => (float[S,8] y)", "y = optc.Times <factor: float = 3.0> (x)")
