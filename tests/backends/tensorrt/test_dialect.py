"""Every trap of TensorRT's parser is refused before the parser sees it."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from optc.backends.tensorrt.builder import run_builder
from optc.backends.tensorrt.dialect import problems
from optc.backends.tensorrt.provider import missing_reason
from tests.backends.tensorrt.graphs import attention_layer, parse, refusal, request

needs_tensorrt = pytest.mark.skipif(bool(missing_reason()), reason=missing_reason())
_SM = ("sm_89",)


def _attention(model: ir.Model) -> ir.Node:
    return next(node for node in model.graph if node.op_type == "Attention")


def _with_nonpad() -> ir.Model:
    """Attention-24 with the lengths of the sequences instead of a mask."""
    model = attention_layer()
    lengths = ir.Value(name="lengths", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(["B"]))
    model.graph.inputs.append(lengths)
    node = _attention(model)
    node.resize_inputs(7)
    node.replace_input_with(3, None)
    node.replace_input_with(6, lengths)
    model.graph.inputs.remove(next(v for v in model.graph.inputs if v.name == "mask"))
    return model


def _with_window() -> ir.Model:
    """Attention-25's sliding window, stated in a model of opset 24."""
    model = attention_layer()
    _attention(model).attributes["left_window_size"] = ir.AttrInt64("left_window_size", 16)
    return model


def test_the_layer_of_attention_over_slots_is_legal() -> None:
    assert list(problems(attention_layer(), ("sm_80", "sm_120"))) == []


def test_lengths_that_the_parser_drops() -> None:
    assert "Attention Attention.14: nonpad_kv_seqlen would be dropped" in refusal(_with_nonpad())


def test_a_window_that_the_parser_ignores() -> None:
    assert "the attribute left_window_size would be ignored" in refusal(_with_window())


@needs_tensorrt
@pytest.mark.parametrize("trap", [_with_nonpad, _with_window])
def test_tensorrt_itself_builds_these_two_without_an_error(tmp_path: Path, trap: object) -> None:
    """What makes them traps: the day that this fails, the rule can be looked at again."""
    assert callable(trap)
    model = trap()
    asked = request(model, tmp_path)
    if trap is _with_nonpad:
        profiles = []
        for profile in asked.profiles:
            shapes = {k: v for k, v in profile.shapes.items() if k != "mask"}
            shapes["lengths"] = shapes["write_indices"]
            profiles.append(type(profile)(profile.name, shapes))
        asked = request(model, tmp_path, profiles=tuple(profiles))
    run_builder(asked)
    assert Path(asked.engine).stat().st_size > 0


def test_newer_opsets_whose_attributes_are_ignored() -> None:
    model = attention_layer()
    model.opset_imports[""] = 25
    assert "the model uses opset 25" in refusal(model)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("is_causal", 1, "is_causal=1 is not implemented, only 0"),
        ("softcap", 30.0, "softcap=30.0 is not implemented, only 0.0"),
        ("softmax_precision", 1, "the attribute softmax_precision would be ignored"),
        ("qk_matmul_output_mode", 3, "qk_matmul_output_mode=3 is not implemented"),
    ],
)
def test_attributes_of_attention(name: str, value: float, why: str) -> None:
    model = attention_layer()
    kind = ir.AttrInt64 if isinstance(value, int) else ir.AttrFloat32
    _attention(model).attributes[name] = kind(name, value)
    assert f"Attention Attention.14: {why}" in refusal(model)


def test_attention_with_past_keys_or_several_outputs() -> None:
    model = attention_layer()
    node = _attention(model)
    node.resize_inputs(6)
    node.replace_input_with(4, model.graph.inputs[3])
    node.replace_input_with(5, model.graph.inputs[4])
    assert "write them with TensorScatter" in refusal(model)


def test_attention_in_float32_has_no_fused_kernel() -> None:
    model = attention_layer()
    for value in _attention(model).inputs[:3]:
        assert value is not None
        value.type = ir.TensorType(ir.DataType.FLOAT)
    said = refusal(model)
    assert "float has no fused kernel" in said
    assert "the mask is float16, it must be float" in said


def test_masks_shorter_than_the_keys_and_wide_heads() -> None:
    model = attention_layer()
    query, key, value, mask = _attention(model).inputs
    for one in (query, key, value, mask):
        assert one is not None
    mask.shape = ir.Shape(["B", 1, "S", 64])  # type: ignore[union-attr]
    query.shape = ir.Shape(["B", 4, "S", 512])  # type: ignore[union-attr]
    value.shape = ir.Shape(["B", 2, 128, 48])  # type: ignore[union-attr]
    said = refusal(model)
    assert "the mask covers 64 of 128 keys" in said
    assert "a head dimension of 512 has no fused kernel" in said
    assert "values are 48 wide and keys 64" in said


def test_caches_that_are_not_inputs_and_outputs() -> None:
    model = attention_layer()
    scatter = next(node for node in model.graph if node.op_type == "TensorScatter")
    cache = scatter.inputs[0]
    copy = ir.node("Identity", [cache], name="copy")
    copy.outputs[0].shape, copy.outputs[0].type = cache.shape, cache.type  # type: ignore[union-attr]
    model.graph.insert_before(scatter, [copy])
    scatter.replace_input_with(0, copy.outputs[0])
    model.graph.outputs.remove(scatter.outputs[0])
    said = refusal(model)
    assert "the cache must be an input of the graph" in said
    assert "the written cache must be an output of the graph" in said


@pytest.mark.parametrize(
    ("shape", "dtype", "why"),
    [
        (["B", 2, "L", 64], ir.DataType.FLOAT16, "all but B static"),
        (["B", 128, 128], ir.DataType.FLOAT16, "all but B static"),
        (["B", 2, 128, 64], ir.DataType.INT8, "a cache of int8 is not implemented"),
        (["B", 2, 128, 64], ir.DataType.FLOAT8E4M3FN, "a cache of float8e4m3fn is not"),
    ],
)
def test_caches_of_other_forms(shape: list[str | int], dtype: ir.DataType, why: str) -> None:
    model = attention_layer()
    cache = model.graph.inputs[3]
    cache.shape, cache.type = ir.Shape(shape), ir.TensorType(dtype)
    assert why in refusal(model)


def test_circular_writes_and_other_axes() -> None:
    model = attention_layer()
    scatter = next(node for node in model.graph if node.op_type == "TensorScatter")
    scatter.attributes["mode"] = ir.AttrString("mode", "circular")
    scatter.attributes["axis"] = ir.AttrInt64("axis", 1)
    said = refusal(model)
    assert "mode=circular is not implemented, only linear" in said
    assert "only the axis -2 is implemented" in said


def test_scatters_that_copy_a_cache() -> None:
    model = parse(
        """<ir_version: 11, opset_import: ["" : 24]>
        g (float16[8,64] cache, int64[n,1] at, float16[n,64] rows) => (float16[8,64] y)
        { y = ScatterND(cache, at, rows) }"""
    )
    assert "it would copy the whole of a graph input" in refusal(model)


@pytest.mark.parametrize("op_type", ["MatMulNBits", "GroupQueryAttention"])
def test_contributed_operators_without_their_plugins(op_type: str) -> None:
    text = f"""<ir_version: 11, opset_import: ["" : 24, "com.microsoft" : 1]>
        g (float16[T,8] x) => (float16[T,8] y) {{ y = com.microsoft.{op_type}(x) }}"""
    assert f"com.microsoft::{op_type} is refused" in refusal(parse(text))


def test_nodes_without_names_of_their_own() -> None:
    model = attention_layer()
    for node in list(model.graph)[:2]:
        node.name = "same"
    assert "Constant same: the layer table needs a unique name" in refusal(model)


def test_a_message_names_five_problems_and_counts_the_rest() -> None:
    model = attention_layer()
    for node in model.graph:
        node.name = ""
    assert refusal(model).endswith("; and 13 more")
