"""ONNX files: what is read, named and refused."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from optc.errors import InputError, OptcError, UnsupportedError
from optc.importer.tensors.older_opsets import OPSET
from optc.importer.tensors.onnx_source import import_onnx
from optc.runtime.executable.tensors_interface import DimRange
from optc.system.sources.dim import Dim
from tests.support.ir_text import f32
from tests.support.ragged import run

WEIGHT = f32(4, 3)


def proto(dims: list[int | str | None], opset: int = 18, **how: object) -> onnx.ModelProto:
    """y = x W."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [dims[0], 3])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def saved(folder: Path, location: str = "weights.bin") -> Path:
    """A file whose weight lies beside it."""
    path = folder / "m.onnx"
    onnx.save(proto([2, 4]), path, save_as_external_data=True, location=location, size_threshold=0)
    return path


@pytest.mark.parametrize("kind", ["proto", "ir", "file"])
def test_every_kind_of_model_is_read(tmp_path: Path, kind: str) -> None:
    made = proto(["batch", 4])
    onnx.save(made, tmp_path / "m.onnx")
    source = {"proto": made, "ir": ir.from_proto(made), "file": tmp_path / "m.onnx"}[kind]
    found = import_onnx(source, "m", [Dim("batch", 1, 8)])
    assert found.interface.inputs[0].dims == ("batch", 4)
    assert found.interface.symbols == {"batch": DimRange(1, 8)}
    assert found.digest == import_onnx(made, "m", [Dim("batch", 1, 8)]).digest


def test_another_weight_is_another_digest() -> None:
    other = proto(["batch", 4])
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(WEIGHT + 1, "w"))
    assert import_onnx(other, "m").digest != import_onnx(proto(["batch", 4]), "m").digest


@pytest.mark.parametrize("dim", [None, -1, "?"])
def test_dimensions_without_a_name_get_one(dim: int | str | None) -> None:
    found = import_onnx(proto([dim, 4]), "m")
    assert found.interface.inputs[0].dims == ("x_0", 4)
    assert found.interface.outputs[0].dims == ("y_0", 3)


def test_a_dimension_of_one_size_is_fixed_and_an_unknown_one_refused() -> None:
    found = import_onnx(proto(["batch", 4]), "m", [Dim("batch", 5, 5)])
    assert [one.dims for one in (*found.interface.inputs, *found.interface.outputs)] == [
        (5, 4),
        (5, 3),
    ]
    with pytest.raises(InputError, match=r"no input or output has the dimension 'rows'.*batch"):
        import_onnx(proto(["batch", 4]), "m", [Dim("rows", 1, 5)])


def test_weights_among_the_inputs_are_no_inputs() -> None:
    made = proto(["batch", 4])
    made.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3]))
    assert [one.name for one in import_onnx(made, "m").interface.inputs] == ["x"]


def test_old_opsets_are_converted() -> None:
    assert import_onnx(proto(["batch", 4], 9), "m").model.opset_imports[""] == OPSET


def test_every_changed_byte_is_read_or_told(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for opset, byte, every in ((18, 255, 1), (9, 7, 8)):
        whole = proto(["batch", 4], opset).SerializeToString()
        for at in range(0, len(whole), every):
            path.write_bytes(whole[:at] + bytes([byte]) + whole[at + 1 :])
            with suppress(OptcError):
                import_onnx(path, "m")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for content in (b"", b"\x08", b"not a model", proto([2, 4]).SerializeToString()[:-9]):
        path.write_bytes(content)
        with pytest.raises((InputError, UnsupportedError)):
            import_onnx(path, "m")
    with pytest.raises(InputError, match="cannot be read"):
        import_onnx(tmp_path / "absent.onnx", "m")


def test_weights_beside_the_file_stay_there(tmp_path: Path) -> None:
    found = import_onnx(saved(tmp_path), "m")
    tensor = found.model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    np.testing.assert_array_equal(tensor.numpy(), WEIGHT)


@pytest.mark.parametrize("how", ["missing", "short", "outside", "link"])
def test_weights_elsewhere_are_refused(tmp_path: Path, how: str) -> None:
    (tmp_path / "in").mkdir()
    path = saved(tmp_path / "in")
    weights = tmp_path / "in/weights.bin"
    if how == "missing":
        weights.unlink()
    elif how == "short":
        weights.write_bytes(weights.read_bytes()[:-1])
    else:
        weights.rename(tmp_path / "weights.bin")
        if how == "link":
            weights.symlink_to(tmp_path / "weights.bin")
        else:
            made = onnx.load(path, load_external_data=False)
            made.graph.initializer[0].external_data[0].value = "../weights.bin"
            path.write_bytes(made.SerializeToString())
    with pytest.raises(InputError, match=r"missing or too short|outside of the model's folder"):
        import_onnx(path, "m")


def branching(tensor: onnx.TensorProto, *, attribute: bool) -> onnx.ModelProto:
    """y is x, and a constant in a branch: an initializer or an attribute of the subgraph."""
    out = helper.make_tensor_value_info("o", TensorProto.FLOAT, [4, 3])
    if attribute:
        node = helper.make_node("Constant", [], ["o"], value=tensor)
        branch = helper.make_graph([node], "b", [], [out])
    else:
        node = helper.make_node("Identity", [tensor.name], ["o"])
        branch = helper.make_graph([node], "b", [], [out], [tensor])
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)],
        "g",
        [helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 3])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("attribute", [False, True])
@pytest.mark.parametrize("location", ["w.bin", "../w.bin"])
def test_weights_of_branches_are_checked_and_kept(
    tmp_path: Path, location: str, attribute: bool
) -> None:
    (tmp_path / "in").mkdir()
    tensor = numpy_helper.from_array(WEIGHT, "w")
    (tmp_path / "in" / location).write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    path = tmp_path / "in/m.onnx"
    path.write_bytes(branching(tensor, attribute=attribute).SerializeToString())
    if location.startswith(".."):
        with pytest.raises(InputError, match="outside of the model's folder"):
            import_onnx(path, "m")
        return
    found = import_onnx(path, "m")
    (tmp_path / "in/w.bin").unlink()
    (output,) = run(found.model, {"c": np.array(True)})
    np.testing.assert_array_equal(output, WEIGHT)


@pytest.mark.parametrize("trains", [True, False])
def test_dropout_that_drops_is_refused(trains: bool) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[N,4] x) => (float[N,4] y)'
        f"<float r = {{0.5}}, bool t = {{{int(trains)}}}> {{ y = Dropout(x, r, t) }}"
    )
    refused = pytest.raises(UnsupportedError, match="exported as it trains")
    with refused if trains else nullcontext():
        import_onnx(model, "m")


def test_what_is_drawn_at_random_is_told() -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[N,4] x) => (float[N,4] y)'
        "{ r = RandomNormalLike(x) y = Add(x, r) }"
    )
    (warning,) = import_onnx(model, "m").warnings
    assert "draws random numbers (RandomNormalLike r)" in warning
