"""ONNX models with sparse weights, maps of classes, strings, old formats and bfloat16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from optc.errors import InputError, UnsupportedError
from optc.importer.tensors.onnx_source import import_onnx
from tests.support.ragged import run

X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
FLOAT = TensorProto.FLOAT


def made(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, int],
    outputs: list[onnx.ValueInfoProto],
    weights: list[onnx.TensorProto] | None = None,
    opset: int = 18,
    version: int = 9,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(k, kind, ["n", 4]) for k, kind in inputs.items()],
        outputs,
        weights or [],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=version)


def rows(name: str, size: int, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, ["n", size])


@pytest.mark.parametrize("places", [[0, 7], [[0, 0], [2, 1]]])
def test_sparse_weights_become_dense(tmp_path: Path, places: list[int]) -> None:
    values = numpy_helper.from_array(np.array([1.5, 2.5], np.float32), "w")
    index = numpy_helper.from_array(np.array(places, np.int64), "i")
    proto = made([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": FLOAT}, [rows("y", 3)])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, index, [4, 3]))
    onnx.save(proto, tmp_path / "m.onnx")
    weight = np.zeros((4, 3), np.float32)
    weight[0, 0], weight[2, 1] = 1.5, 2.5
    for source in (proto, tmp_path / "m.onnx"):
        (y,) = run(import_onnx(source, "m").model, {"x": X})
        np.testing.assert_allclose(y, X @ weight, rtol=1e-6)
    assert proto.graph.sparse_initializer  # the caller's is not changed


def test_sparse_weights_elsewhere_are_refused() -> None:
    values = numpy_helper.from_array(np.array([1.5], np.float32), "w")
    index = numpy_helper.from_array(np.array([0], np.int64), "i")
    proto = made([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": FLOAT}, [rows("y", 3)])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, index, [4, 3]))
    proto.graph.sparse_initializer[0].values.data_location = TensorProto.EXTERNAL
    with pytest.raises(UnsupportedError, match="weight w: it is sparse and lies in another file"):
        import_onnx(proto, "m")


def test_maps_of_classes_become_tensors_of_scores() -> None:
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(FLOAT, []))
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"]),
        helper.make_node(
            "ZipMap", ["p"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[3, 5, 7, 9]
        ),
    ]
    output = helper.make_value_info("z", helper.make_sequence_type_proto(kind))
    found = import_onnx(made(nodes, {"x": FLOAT}, [output]), "m")
    assert (found.interface.outputs[0].name, found.interface.outputs[0].dims[1]) == ("z", 4)
    assert "of the classes 3, 5, 7, 9" in found.warnings[0]
    (z,) = run(found.model, {"x": X})
    np.testing.assert_allclose(z.sum(-1), 1, rtol=1e-6)


def test_strings_within_a_graph_are_weights() -> None:
    texts = [helper.make_tensor(name, TensorProto.STRING, [1], ["a"]) for name in "st"]
    nodes = [
        helper.make_node("Equal", ["s", "t"], ["e"]),
        helper.make_node("Cast", ["e"], ["f"], to=FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    found = import_onnx(made(nodes, {"x": FLOAT}, [rows("y", 4)], texts, opset=19), "m")
    (y,) = run(found.model, {"x": X})
    np.testing.assert_array_equal(y, X + 1)


@pytest.mark.parametrize("inputs", [{"x": FLOAT}, {"x": FLOAT, "w": FLOAT}])
def test_the_oldest_opset_and_format_are_converted(inputs: dict[str, int]) -> None:
    weight = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    found = import_onnx(made([node], inputs, [rows("y", 4)], [weight], 7, 3), "m")
    (y,) = run(found.model, {"x": X})
    np.testing.assert_allclose(y, X @ np.ones((4, 4)), atol=1e-6)


def test_bfloat16_is_computed_in_float32() -> None:
    kind = TensorProto.BFLOAT16
    weight = helper.make_tensor("w", kind, [4, 4], np.arange(16).tolist())
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=kind),
        helper.make_node("MatMul", ["h", "w"], ["m"]),
        helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", kind, [1], [2.0])),
        helper.make_node("Mul", ["m", "c"], ["y"]),
    ]
    found = import_onnx(made(nodes, {"x": FLOAT}, [rows("y", 4, kind)], [weight]), "m")
    assert found.interface.outputs[0].dtype == "float32"
    assert "bfloat16" in found.warnings[0]
    (y,) = run(found.model, {"x": X})
    np.testing.assert_allclose(y, X @ np.arange(16).reshape(4, 4) * 2, rtol=1e-5)


def test_an_output_that_is_an_input_leaves_the_input_its_name() -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    found = import_onnx(made([node], {"x": FLOAT}, [rows("x", 4), rows("y", 4)]), "m")
    assert [one.name for one in found.interface.inputs] == ["x"]
    assert [one.name for one in found.interface.outputs] == ["x_out", "y"]


def test_batch_norms_in_training_are_refused() -> None:
    numbers = [numpy_helper.from_array(np.ones(4, np.float32), name) for name in "sbmv"]
    node = helper.make_node(
        "BatchNormalization", ["x", *"sbmv"], ["y", "m2", "v2"], training_mode=1
    )
    with pytest.raises(UnsupportedError, match="BatchNormalization y: it is a batch norm by mean"):
        import_onnx(made([node], {"x": FLOAT}, [rows("y", 4)], numbers), "m")


def test_the_error_that_says_what_is_wrong_is_shown() -> None:
    nodes = [helper.make_node(kind, ["x"], ["y"]) for kind in ("Neg", "Relu")]
    with pytest.raises(InputError, match="'y' is redeclared"):
        import_onnx(made(nodes, {"x": FLOAT}, [rows("y", 4)]), "m")
