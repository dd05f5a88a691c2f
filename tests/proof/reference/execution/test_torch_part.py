"""Parts in PyTorch: other weights, foreign operators, constants, and devices."""

from __future__ import annotations

import warnings

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest
import torch

from optc.proof.reference.execution.part import open_part
from optc.proof.reference.execution.program import Program, own_tensor, tensor_of
from optc.proof.reference.execution.torch_part import TorchPart, _is_weight
from optc.proof.reference.partition import partition
from optc.proof.reference.running.rows import total_width
from tests.proof.reference.execution.one_node import both, lazy, one_node
from tests.proof.reference.execution.test_operators import CASES, Case
from tests.support.families import FAMILIES
from tests.support.models import dense_model

META = torch.device("meta")
RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_weights_are_replaced_and_restored() -> None:
    rows, x = normal(5, 4), normal(2, 3, 4)
    model, given = one_node(("", "MatMul"), [x, lazy(rows)], {})
    graph = model.graph
    operands = (model, list(graph), list(graph.inputs), list(graph.outputs), 1)
    run = TorchPart(*operands, "cpu")
    (weight,) = graph.initializers.values()
    other = normal(5, 4)
    run.replace({weight: other})
    np.testing.assert_allclose(run.run(given)[0], x @ other.T, rtol=1e-5, atol=1e-6)
    run.restore([weight])
    np.testing.assert_allclose(run.run([run.hold(x)])[0], x @ rows.T, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"v1: shape \(4, 5\), not \(5, 4\)"):
        run.replace({weight: other.T})
    with pytest.raises(ValueError, match="out0: not a weight of this block"):
        run.replace({graph.outputs[0]: other})


def test_a_value_that_is_not_given_is_named() -> None:
    model, _ = one_node(("", "Neg"), [normal(2)], {})
    with pytest.raises(ValueError, match="reads v0, which it is not given"):
        open_part(model, list(model.graph), [], list(model.graph.outputs), 1)


@pytest.mark.parametrize("op", ["HardSwish", "Round"])
def test_an_operator_that_is_none_of_the_dense_forms_is_computed_all_the_same(op: str) -> None:
    model, given = one_node(("", op), [3 * normal(2, 3, 4)], {})
    mine, theirs = both(model, given)
    np.testing.assert_array_equal(mine[0], theirs[0])


def test_an_operator_of_another_distribution_is_computed_by_its_body() -> None:
    text = """<opset_import: ["" : 23], domain: "theirs", overload: "a">
        Twice (x, y) => (sum, twice) { sum = Add (x, y)  twice = Add (sum, sum) }"""
    x = normal(2, 3)
    model, _ = one_node(("", "Neg"), [x], {})
    function = ir.from_proto(onnx.parser.parse_function(text))
    model.functions["theirs", "Twice", "a"] = function
    model.graph.opset_imports["theirs"] = 1
    constant = ir.Value(name="c", const_value=ir.Tensor(np.float32([1, 2, 3])))
    model.graph.register_initializer(constant)
    before = model.graph[0].outputs[0]
    node = ir.Node("theirs", "Twice", [before, constant], overload="a", num_outputs=2)
    for place, value in enumerate(node.outputs):
        value.name, value.type = f"twice{place}", ir.TensorType(ir.DataType.FLOAT)
    model.graph.append(node)
    inputs = list(model.graph.inputs)
    found = TorchPart(model, list(model.graph), inputs, node.outputs, 1, "cpu").run([x])
    np.testing.assert_allclose(found[0], [1, 2, 3] - x, rtol=1e-6)
    np.testing.assert_allclose(found[1], 2 * ([1, 2, 3] - x), rtol=1e-6)


def test_constants_that_nodes_compute_come_along() -> None:
    model, given = one_node(("", "Neg"), [normal(2, 3)], {})
    start = ir.Value(name="c", const_value=ir.Tensor(np.float32([1, 2, 3])))
    model.graph.register_initializer(start)
    made = ir.node("Exp", [start])
    add = ir.node("Add", [model.graph[0].outputs[0], made.outputs[0]])
    model.graph.extend([made, add])
    part = TorchPart(model, [model.graph[0], add], model.graph.inputs, add.outputs, 1, "cpu")
    np.testing.assert_allclose(part.run(given)[0], np.exp([1, 2, 3]) - given[0], rtol=1e-6)


def test_arrays_that_cannot_be_written_to_are_not_copied_and_nobody_is_warned() -> None:
    array = normal(3, 4)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = tensor_of(array)
    assert tensor.data_ptr() == array.ctypes.data
    assert tensor_of(np.float32(2).reshape(())).shape == ()
    assert tensor_of(array.T).is_contiguous()


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_of_a_model_stays_behind_on_the_cpu(family: str) -> None:
    """On a device whose tensors have no values: most operators refuse others beside them."""
    for before, after in through(dense_model(FAMILIES[family])):
        assert before.device == after.device == META
        assert before.shape == after.shape


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name != "ExpertMatMul"], ids=lambda case: case.name
)
def test_no_operator_brings_a_tensor_of_the_cpu(case: Case) -> None:
    op = case.domain, case.name
    model, arrays = one_node(op, case.operands, case.attributes, case.outputs, case.kind)
    graph = model.graph
    program = Program(list(graph), graph.inputs, list(graph.outputs), pytest.fail, _is_weight)
    values = zip(graph.inputs, (tensor_of(one).to(META) for one in arrays), strict=True)
    assert {one.device for one in run(program, dict(values))} == {META}


def through(model: ir.Model) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Inputs and results of the blocks of a model."""
    parts, pairs = partition(model), []
    source = model.graph.inputs[1]
    ahead = Program(parts.position_nodes, [source], parts.shared, pytest.fail, _is_weight)
    positions = torch.zeros(2, 6, dtype=torch.int64, device=META)
    shared = dict(zip(parts.shared, run(ahead, {source: positions}), strict=True))
    for block in parts.blocks:
        inputs = [*block.given, *parts.shared]
        program = Program(block.nodes, inputs, [block.result], pytest.fail, _is_weight)
        given = {v: torch.zeros(2, 6, total_width([v]), device=META) for v in block.given}
        pairs.append((given[block.source], *run(program, {**given, **shared})))
    return pairs


def run(program: Program, values: dict[ir.Value, torch.Tensor]) -> list[torch.Tensor]:
    weights = {value: own_tensor(value).to(META) for value in program.weights}
    return program.run(values | weights, META)


def test_the_device_is_that_of_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    from optc.proof.reference.execution import torch_part
    from optc.proof.reference.execution.device import running_on

    asked = []

    class Stub:
        def __init__(self, *operands: object) -> None:
            asked.append(operands[-1])

    monkeypatch.setattr(torch_part, "TorchPart", Stub)
    model, _ = one_node(("", "Neg"), [normal(2)], {})
    for device in ("cuda", "cpu"):
        with running_on(device):
            open_part(model, [], [], [], 1)
    open_part(model, [], [], [], 1)
    assert asked == ["cuda", "cpu", "cpu"]
