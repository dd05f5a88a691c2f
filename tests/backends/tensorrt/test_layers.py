from __future__ import annotations

import pytest

from optc.backends.tensorrt.layers import LayerTensor, parse_table
from optc.backends.tensorrt.report import (
    Expected,
    describe_part,
    matmul_types,
    signature,
    written_in_place,
)


def _tensor(name: str, dims: str, dtype: str) -> str:
    return (
        f"{{ Name: {name}, Dimensions: [{dims}], Strides: [1], StrideOrder: [0],"
        f" Datatype: {dtype}, Format: (Linear) Row major linear format }}"
    )


_X, _Y = _tensor("x [profile 1]", "-1,64", "Half"), _tensor("y", "-1,32", "Half")
_CACHE = _tensor("present_k.0 [profile 1]", "-1,2,128,64", "Half")
_GEMM = (
    f"Name: a+b_myl1_3, LayerType: runtime_fusion, Inputs: [ {_X}], Constants: ["
    f" {_tensor('scale', '2,32', 'Half')}, {_tensor('weight', '64,32', 'Int4')}], Outputs: [ {_Y}],"
    " TacticName: , StreamId: 0, Metadata: [ONNX Layer: dq]\x1f[ONNX Layer: matmul]"
)
_SCATTER = (
    f"Name: __myl_Scat_myl1_4, LayerType: kgen, Inputs: [ {_CACHE}, {_Y}], Constants: [], Outputs:"
    f" [ {_CACHE}], TacticName: __myl_Scat_0x12, StreamId: 0, Metadata: [ONNX Layer: write]"
)
_ATTENTION = (
    f"Name: _gemv_mha_v1_myl1_5, LayerType: kgen, Inputs: [ {_CACHE}], Constants: [], Outputs:"
    f" [ {_Y}], TacticName: _gemv_mha_v1_0xad, StreamId: 0, Metadata: [ONNX Layer: attend]"
)
_SHAPES = (
    "Name: __mye1_myl1_0, LayerType: shape_call, Inputs: [], Constants: [], Outputs: [],"
    " TacticName: , StreamId: 0, Metadata: "
)
_TABLE = "\n".join(
    ["Layers:", _SHAPES, _GEMM, _SCATTER, _ATTENTION, "", "I/O Tensors:", " Name: x, IOMode: Input"]
)


def test_a_line_is_taken_apart() -> None:
    layer = parse_table(_TABLE)[1]
    assert (layer.name, layer.kind, layer.part, layer.tactic) == (
        "a+b_myl1_3",
        "runtime_fusion",
        1,
        "",
    )
    assert layer.inputs == (LayerTensor("x", "Half", (-1, 64)),)
    assert layer.constants[1] == LayerTensor("weight", "Int4", (64, 32))
    assert layer.nodes == ("dq", "matmul")


def test_lines_that_are_not_understood_are_an_error() -> None:
    with pytest.raises(ValueError, match="not a layer: Name: broken"):
        parse_table("Layers:\nName: broken\n")


def test_a_part_is_described() -> None:
    expected = Expected(("attend", "elsewhere"), ("matmul", "lost"), ("present_k.0", "present_v.0"))
    described = describe_part(parse_table(_TABLE), expected)
    assert described == {
        "kernels": 3,
        "kinds": {"kgen": 2, "runtime_fusion": 1},
        "fused_attention": {"fused": 1, "of": 2, "kernels": {"_gemv_mha_v1": 1}},
        "matmul_types": {"Half x Int4": 1},
        "other_matmuls": ["lost"],
        "kv_in_place": {"in_place": 1, "of": 2},
    }


def test_types_of_a_matmul_are_those_of_its_input_and_its_largest_constant() -> None:
    assert matmul_types(parse_table(_TABLE), ["matmul"]) == {"matmul": "Half x Int4"}


def test_caches_that_are_copied_are_not_in_place() -> None:
    copied = _TABLE.replace(f"[ {_CACHE}, {_Y}]", f"[ {_Y}]")
    assert written_in_place(parse_table(_TABLE)) == {"present_k.0"}
    assert written_in_place(parse_table(copied)) == set()


def test_the_signature_sees_types_and_nodes_but_not_generated_names() -> None:
    plain = signature(parse_table(_TABLE))
    renamed = _TABLE.replace("0x12", "0x99").replace("a+b_myl1_3", "b+a_myl1_3")
    assert signature(parse_table(renamed)) == plain
    assert signature(parse_table(_TABLE.replace("Int4", "Int8"))) != plain
    assert signature(parse_table(_TABLE.replace(": matmul", ": other"))) != plain
