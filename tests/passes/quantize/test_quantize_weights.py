"""`quantize-weights`: text, schemes, tied weights, the model against NumPy fake-quantization."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.pipeline.base import PassContext
from optc.ir.quantized_rows import QuantizedPart
from optc.ir.sources import Source, sources_metadata, sources_of
from optc.ir.weights import as_lazy
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.numerics.affine import dequantize_rows, quantize_rows
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.budget.allocate_bits import AllocateBits
from optc.passes.quantize.quantize_weights import QuantizeWeights, quantize_behind
from optc.passes.quantize.rotate.rotate_activations import RotateActivations
from tests.support import oracle
from tests.support.ir_text import Array, expected, f32, model_of, nodes_text
from tests.support.models import Dense, dense_model
from tests.support.ragged import RaggedDriver, run

#: Where the rows of a merged weight come from.
ORIGIN = (Source("u", 0, 32), Source("v", 32, 96))
INT4 = {"bits": 4, "group_size": 32, "symmetric": False}
TWO_LEVEL = {**INT4, "group_scales": "int"}
PLAIN = Scheme(8, 0, True)


def lazy(model: ir.Model, name: str) -> QuantizedPart:
    tensor = model.graph.initializers[name].const_value
    assert isinstance(tensor, QuantizedPart)
    return tensor


def test_text_and_shared_activation() -> None:
    nodes = """
        t = Tanh (x)
        a0 = MatMul (t, wa)
        a = Add (a0, ba)
        b = MatMul (t, wb)
        c = Add (a, b)
        y = MatMul (c, head)"""
    weights = {"wa": f32(64, 96), "ba": f32(96), "wb": f32(64, 96, seed=1), "head": f32(96, 10)}
    model = model_of("g (float[S,64] x) => (float[S,10] y)", nodes, weights)
    model.graph.initializers["wa"].metadata_props.update(sources_metadata(ORIGIN))
    report = QuantizeWeights(bits=4, group_size=32, symmetric=False).run(model)
    assert nodes_text(model) == expected(
        """
        t = Tanh (x)
        t.q, t.s = optc.QuantizeActivation (t)
        a = optc.QuantizedMatMul <bits = 4, group_size = 32> (t.q, t.s, wa.quantized, wa.scale, \
wa.zero_point, ba)
        b = optc.QuantizedMatMul <bits = 4, group_size = 32> (t.q, t.s, wb.quantized, wb.scale, \
wb.zero_point)
        c = Add (a, b)
        c.q, c.s = optc.QuantizeActivation (c)
        y = optc.QuantizedMatMul <bits = 8, group_size = 0> (c.q, c.s, head.quantized, \
head.scale)"""
    )
    assert report.details == {"int4 groups of 32 asymmetric": 2, "int8 per channel": 1}
    values = model.graph.initializers
    assert sources_of(values["wa.quantized"], 96) == ORIGIN
    assert sources_of(values["wb.quantized"], 96) == (Source("wb", 0, 96),)
    assert lazy(model, "wa.quantized").whole is lazy(model, "wa.zero_point").whole
    assert set(model.graph.initializers) == {
        *(f"{w}.{part}" for w in ("wa", "wb") for part in ("quantized", "scale", "zero_point")),
        *("ba", "head.quantized", "head.scale"),
    }
    weights_seen = 64 * 96 * 2 + 96 * 10
    bits = 64 * 96 * 2 * (4 + 20 / 32) + 10 * (96 * 8 + 32)
    assert report.facts["weights"] == weights_seen
    assert report.facts["bits_per_weight"] == pytest.approx(bits / weights_seen)


def test_first_layers_stay_float() -> None:
    nodes = """
        a = MatMul (x, wa)
        b = MatMul (x, wb)
        c = Add (a, b)
        y = MatMul (c, head)"""
    weights = {"wa": f32(64, 64), "wb": f32(64, 64, seed=1), "head": f32(64, 10)}
    model = model_of("g (float[S,64] x) => (float[S,10] y)", nodes, weights)
    quantize = QuantizeWeights(float_first=1)
    RotateActivations(block=64).run(model, PassContext(later=(quantize,)))
    report = quantize.run(model)
    assert nodes_text(model) == expected(
        """
        a = MatMul (x, wa)
        b = MatMul (x, wb)
        c = Add (a, b)
        c.rotated = optc.BlockHadamard <block = 64, width = 64> (c)
        c.rotated.q, c.rotated.s = optc.QuantizeActivation (c.rotated)
        y = optc.QuantizedMatMul <bits = 8, group_size = 0> (c.rotated.q, c.rotated.s, \
head.quantized, head.scale)"""
    )
    assert report.details == {"int8 per channel": 1}
    assert report.facts["weights"] == 64 * 10


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"float_first": -1}, "float_first is -1"),
        ({"float_first": 2, "method": "gptq"}, "float_first goes with method=round"),
    ],
)
def test_layers_that_cannot_stay_float(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        QuantizeWeights(**options)


def test_passes_that_round_before_it_know_no_floats() -> None:
    later = (QuantizeWeights(float_first=2),)
    with pytest.raises(InputError, match="float_first leaves layers alone that this pass changes"):
        quantize_behind(AllocateBits(budget="4bpw"), later)


def test_text_with_integer_scales() -> None:
    nodes = "a0 = MatMul (x, wa)\na = Add (a0, ba)\ny = MatMul (a, head)"
    weights = {"wa": f32(64, 96), "ba": f32(96), "head": f32(96, 10)}
    model = model_of("g (float[S,64] x) => (float[S,10] y)", nodes, weights)
    report = QuantizeWeights(**INT4, group_scales="int", head_bits=4).run(model)
    assert nodes_text(model) == expected(
        """
        x.q, x.s = optc.QuantizeActivation (x)
        a = optc.QuantizedMatMul <bits = 4, group_size = 32> (x.q, x.s, wa.quantized, wa.scale, \
wa.zero_point, ba, wa.group_scale)
        a.q, a.s = optc.QuantizeActivation (a)
        y = optc.QuantizedMatMul <bits = 4, group_size = 32> (a.q, a.s, head.quantized, \
head.scale, head.zero_point, , head.group_scale)"""
    )
    assert report.details == {"int4 groups of 32 asymmetric, integer": 2}
    parts = {part: lazy(model, f"wa.{part}") for part in ("scale", "zero_point", "group_scale")}
    assert {part: list(tensor.shape) for part, tensor in parts.items()} == {
        "scale": [96],
        "zero_point": [2, 96],
        "group_scale": [2, 96],
    }
    assert parts["group_scale"].dtype == ir.DataType.UINT8
    bits = 64 * 96 * 4.5 + 96 * 10 * 4.5 + (96 + 10) * 32
    assert report.facts["bits_per_weight"] == pytest.approx(bits / (64 * 96 + 96 * 10))


def test_a_head_of_six_bits() -> None:
    model = model_of(
        "g (float[S,64] x) => (float[S,10] y)", "y = MatMul (x, head)", {"head": f32(64, 10)}
    )
    report = QuantizeWeights(**INT4, group_scales="int", head_bits=6).run(model)
    assert nodes_text(model) == expected(
        """
        x.q, x.s = optc.QuantizeActivation (x)
        y = optc.QuantizedMatMul <bits = 6, group_size = 32> (x.q, x.s, head.quantized, \
head.scale, head.zero_point, , head.group_scale)"""
    )
    assert report.details == {"int6 groups of 32 asymmetric, integer": 1}
    values = lazy(model, "head.quantized")
    assert (values.dtype, values.numpy().max()) == (ir.DataType.UINT8, 63)
    assert report.facts["bits_per_weight"] == 6.5 + 32 / 64
    x, rows = f32(5, 64), f32(64, 10)
    want = fake_quantized(x, rows, Scheme(6, 32, False, integer_scales=True))
    np.testing.assert_allclose(run(model, {"x": x})[0], want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("bits", [5, 3, 2])
def test_a_head_of_other_bits_than_the_layers(bits: int) -> None:
    """Values of few bits lie in bytes in the graph, and count as their bits."""
    nodes = "a = MatMul (x, w)\ny = MatMul (a, head)"
    weights = {"w": f32(64, 96), "head": f32(96, 10)}
    model = model_of("g (float[S,64] x) => (float[S,10] y)", nodes, weights)
    report = QuantizeWeights(**{**TWO_LEVEL, "bits": bits, "head_bits": 4}).run(model)
    assert list(report.details) == [f"int{b} groups of 32 asymmetric, integer" for b in (bits, 4)]
    layer = next(node for node in model.graph if node.op_type == "QuantizedMatMul")
    assert layer.attributes["bits"].as_int() == bits
    values = lazy(model, "w.quantized")
    assert (values.dtype, values.numpy().max()) == (ir.DataType.UINT8, (1 << bits) - 1)
    total = 64 * 96 * (bits + 0.5) + 96 * 10 * 4.5 + (96 + 10) * 32
    assert report.facts["bits_per_weight"] == pytest.approx(total / (64 * 96 + 96 * 10))


def test_activations_of_16_bits() -> None:
    """Weights are those of 8 bits; what is left of the error of the results is theirs."""
    nodes, weights = "a = MatMul (x, w)\ny = MatMul (a, head)", {"w": f32(64, 96)}
    weights["head"] = f32(96, 10)
    model = model_of("g (float[S,64] x) => (float[S,10] y)", nodes, weights)
    QuantizeWeights(activation_bits=16).run(model)
    assert nodes_text(model) == expected(
        """
        x.16bit.q, x.16bit.s = optc.QuantizeActivation <bits = 16> (x)
        a = optc.QuantizedMatMul <bits = 8, group_size = 0> (x.16bit.q, x.16bit.s, w.quantized, \
w.scale)
        a.16bit.q, a.16bit.s = optc.QuantizeActivation <bits = 16> (a)
        y = optc.QuantizedMatMul <bits = 8, group_size = 0> (a.16bit.q, a.16bit.s, \
head.quantized, head.scale)"""
    )
    x = f32(5, 64)
    wide, narrow = (
        fake_quantized(fake_quantized(x, weights["w"], PLAIN, bits), weights["head"], PLAIN, bits)
        for bits in (16, 8)
    )
    (got,) = run(model, {"x": x})
    assert np.abs(got - wide).max() < 2e-4 * np.abs(wide).max()
    assert np.abs(narrow - wide).max() > 2e-3 * np.abs(wide).max()


def test_activations_of_16_bits_of_some_layers() -> None:
    nodes = "a = MatMul (x, wa)\nb = MatMul (x, wb)\nc = Add (a, b)\ny = MatMul (c, head)"
    weights = {"wa": f32(64, 96), "wb": f32(64, 96), "head": f32(96, 10)}

    def read(*patterns: str) -> list[str | None]:
        model = model_of("g (float[S,64] x) => (float[S,10] y)", nodes, weights)
        QuantizeWeights(activation_bits=16, activation_layers=patterns).run(model)
        matmuls = [node for node in model.graph if node.op_type == "QuantizedMatMul"]
        return [node.inputs[0].name if node.inputs[0] else "" for node in matmuls]

    assert read() == ["x.16bit.q", "x.16bit.q", "c.16bit.q"]
    assert read("he*") == ["x.q", "x.q", "c.16bit.q"]
    assert read("wb") == ["x.16bit.q", "x.16bit.q", "c.q"]
    with pytest.raises(InputError, match="no linear layer has a weight like 'down'") as caught:
        read("down")
    assert caught.value.hint == "there are head, wa, wb, …"
    part = model_of("g (float[S,96] c) => (float[S,10] y)", nodes[-20:], {"head": f32(96, 10)})
    one = QuantizeWeights(activation_bits=16, activation_layers=("w?", "he*"))
    assert one.for_part(part).activation_layers == ("he*",)
    none = QuantizeWeights(activation_bits=16, activation_layers=("w?",)).for_part(part)
    assert none == QuantizeWeights()
    with pytest.raises(InputError, match="activation_layers needs activation_bits=16"):
        QuantizeWeights(activation_layers=("*",))
    with pytest.raises(InputError, match="activation_bits"):
        QuantizeWeights(activation_bits=12)


def fake_quantized(x: Array, weight: Array, scheme: Scheme, bits: int = 8) -> Array:
    """x [S, K] and weight [K, N] as the engine sees them, product in float64."""
    rows = dequantize_rows(quantize_rows(weight.T.copy(), scheme), scheme.group_size)
    q, s = oracle.quantize_activation(x, bits)
    product: Array = (q.astype(np.float64) @ rows.T.astype(np.float64)) * s
    return product


@pytest.mark.parametrize(
    ("options", "scheme"),
    [
        ({}, Scheme(8, 0, True)),
        ({"group_size": 32}, Scheme(8, 32, True)),
        ({"group_size": 64, "symmetric": False}, Scheme(8, 64, False)),
        ({"bits": 4, "group_size": 32, "head_bits": 4}, Scheme(4, 32, True)),
        ({**INT4, "head_bits": 4}, Scheme(4, 32, False)),
        ({**INT4, "group_scales": "int", "head_bits": 4}, Scheme(4, 32, False, True)),
        *(
            ({**TWO_LEVEL, "bits": b, "head_bits": b}, Scheme(b, 32, False, True))
            for b in (5, 3, 2)
        ),
    ],
)
def test_equals_fake_quantization(options: dict[str, Any], scheme: Scheme) -> None:
    model = model_of(
        "g (float[S,64] x) => (float[S,10] y)",
        "h = MatMul (x, w)\nt = Tanh (h)\ny = MatMul (t, head)",
        {"w": 0.2 * f32(64, 128), "head": f32(128, 10)},
    )
    QuantizeWeights(**options).run(model)
    x = f32(5, 64)
    (got,) = run(model, {"x": x})
    hidden = np.tanh(fake_quantized(x, np.float32(0.2) * f32(64, 128), scheme)).astype(np.float32)
    want = fake_quantized(hidden, f32(128, 10), scheme)
    # one activation may round the other way where float32 and float64 differ
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-2)
    assert np.abs(got - want).mean() < 1e-3


def test_groups_that_do_not_divide_fall_back() -> None:
    nodes = "a = MatMul (x, odd)\nb = MatMul (a, even)\ny = MatMul (b, head)"
    weights = {"odd": f32(48, 96), "even": f32(96, 64), "head": f32(64, 10)}
    model = model_of("g (float[S,48] x) => (float[S,10] y)", nodes, weights)
    for node, name in zip(model.graph, "abc", strict=True):
        node.name = name
    report = QuantizeWeights(bits=4, group_size=64, head_bits=4).run(model)
    assert report.details == {"int8 per channel": 1, "int4 groups of 32": 1, "int4 groups of 64": 1}
    assert report.skipped == [
        "a: K=48 of odd is not a multiple of 64: int8 per channel",
        "b: K=96 of even is not a multiple of 64: int4 groups of 32",
    ]
    assert report.warnings == [
        "40% of the weights are not of the 4 bits that were asked for; a: K=48 of odd is not a "
        "multiple of 64: int8 per channel"
    ]


@pytest.mark.parametrize(("width", "warned"), [(640, True), (960, False)])
def test_a_twentieth_of_other_bits_goes_without_a_warning(width: int, warned: bool) -> None:
    nodes = "a = MatMul (x, odd)\ny = MatMul (a, even)"
    weights = {"odd": f32(48, 64), "even": f32(64, width)}
    model = model_of(f"g (float[S,48] x) => (float[S,{width}] y)", nodes, weights)
    report = QuantizeWeights(bits=4, group_size=32, head_bits=4).run(model)
    assert bool(report.warnings) == warned


def test_tied_embedding_is_the_quantized_head() -> None:
    model = dense_model(Dense(tied=True))
    report = QuantizeWeights().run(model)
    assert report.details == {"int8 per channel": 15, "embedding shares the head": 1}
    lookup = nodes_text(model).splitlines()[0]
    assert lookup == (
        "gather_out = optc.QuantizedGather <bits = 8, group_size = 0> "
        "(input_ids, head.weight.quantized, head.weight.scale)"
    )
    assert not any(name.startswith("embed") for name in model.graph.initializers)


@pytest.mark.parametrize("bits", [4, 5, 6])
def test_a_tied_embedding_has_the_integer_scales_of_its_head(bits: int) -> None:
    model, plain = (dense_model(Dense(tied=True)) for _ in range(2))
    options = {**INT4, "group_scales": "int", "head_bits": bits}
    QuantizeWeights(**options).run(model)
    lookup = nodes_text(model).splitlines()[0]
    assert lookup.endswith("head.weight.scale, head.weight.zero_point, head.weight.group_scale)")
    feeds = {"input_ids": np.array([[3, 1, 4]]), "position_ids": np.arange(3)[None]}
    # ruinously small, but the same rows: four bits are close to the float model
    assert np.corrcoef(run(model, feeds)[0].ravel(), run(plain, feeds)[0].ravel())[0, 1] > 0.95


def test_untied_embedding_is_int8_per_row() -> None:
    model = dense_model(Dense())
    before = dense_model(Dense()).graph.initializers["embed.weight"].const_value
    report = QuantizeWeights(**INT4).run(model)
    assert report.details["embedding int8 per row"] == 1
    assert before is not None
    values, scales = (lazy(model, f"embed.weight.{part}") for part in ("quantized", "scale"))
    back = (values.numpy().astype(np.float32) * scales.numpy()).T
    step = np.abs(before.numpy()).max(axis=1, keepdims=True) / 127
    assert (np.abs(back - before.numpy()) <= 0.51 * step).all()


def test_options_leave_head_and_embedding_alone() -> None:
    model = dense_model(Dense(tied=True))
    report = QuantizeWeights(head=False).run(model)
    assert report.skipped == [
        "matmul_15: the head stays float (head=false)",
        "gather: the tied head stays float, so the embedding does too",
    ]
    assert nodes_text(model).splitlines()[-1].startswith("logits = MatMul")
    model = dense_model(Dense(tied=True))
    QuantizeWeights(embedding=False).run(model)
    assert nodes_text(model).splitlines()[0].startswith("gather_out = Gather")


@pytest.mark.parametrize("options", [{}, INT4], ids=["int8", "int4"])
def test_chunks_equal_the_whole_prompt(options: dict[str, Any]) -> None:
    """Per-token activations: the quantized ragged model is as chunkable as the float one."""
    model = dense_model(Dense(tied=True, qkv_bias=True, windows=(0, 5)))
    for one in (KVCache(), QuantizeWeights(**options)):
        assert one.run(model).count
    tokens = list(range(24))
    whole = RaggedDriver(model).step({0: tokens})
    driver = RaggedDriver(model)
    parts = np.concatenate([driver.step({0: tokens[:9]}), driver.step({0: tokens[9:]})])
    np.testing.assert_allclose(parts, whole, rtol=1e-3, atol=0.05)
    assert np.abs(parts - whole).mean() < 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 7}, "bits=7 is not possible (one of 8, 6, 5, 4, 3, 2)"),
        ({"head_bits": 1}, "head_bits=1 is not possible (one of 8, 6, 5, 4, 3, 2)"),
        ({**INT4, "bits": 3}, "bits=3 needs integer scales of groups"),
        ({"group_size": 48}, "group_size=48 is not possible (one of 0, 128, 64, 32)"),
        ({"bits": 4}, "int4 weights need groups"),
        ({**TWO_LEVEL, "bits": 2, "group_size": 0}, "int2 weights need groups"),
        ({"symmetric": False}, "asymmetric weights need groups"),
        ({"group_scales": "half"}, "group_scales=half is not possible (one of float, int)"),
        ({**TWO_LEVEL, "bits": 8}, "integer group scales are for asymmetric weights of fewer"),
        ({**TWO_LEVEL, "symmetric": True}, "integer group scales are for asymmetric weights"),
        ({"head_bits": 4}, "head_bits=4 needs integer scales of groups"),
        ({**INT4, "head_bits": 6}, "head_bits=6 needs integer scales of groups"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        QuantizeWeights(**options)
    assert str(caught.value).startswith(f"pass quantize-weights: {message}")


def test_options_come_from_text() -> None:
    texts = {"bits": "4", "group_size": "128", "symmetric": "false", "head": "false"}
    one = QuantizeWeights.from_options(texts)
    assert one == QuantizeWeights(bits=4, group_size=128, symmetric=False, head=False)
    assert one.spec() == "quantize-weights{bits=4,group_size=128,symmetric=false,head=false}"


def test_the_report_counts_all_weights_that_were_quantized() -> None:
    shape = Dense()
    with_table = QuantizeWeights().run(dense_model(shape)).facts
    without = QuantizeWeights(embedding=False).run(dense_model(shape)).facts
    assert with_table["weights"] - without["weights"] == shape.vocab * shape.hidden
    assert 8 < without["bits_per_weight"] < 10


def test_other_lookups_do_not_hide_the_table() -> None:
    model = dense_model(Dense())
    first = model.graph[0]
    assert first.op_type == "Gather"
    three = ir.Value(name="three", const_value=ir.tensor(np.array([3], np.int64)))
    model.graph.register_initializer(three)
    other = ir.Node("", "Gather", [three, model.graph.inputs[0]], name="other")
    model.graph.insert_before(first, other)
    assert QuantizeWeights().run(model).details["embedding int8 per row"] == 1


@pytest.mark.parametrize(
    ("stated", "becomes"),
    [
        ({}, {"bits": 4, "group_size": 32, "head_bits": 8, "group_scales": "int"}),
        ({"layer_bits": ["w=8"]}, {"layer_bits": ("w=8", "a=4g32", "b=4g32")}),
        (
            {"bits": 4, "group_size": 64, "method": "gptq"},
            {"bits": 4, "group_size": 64, "layer_bits": ("a=4g64", "b=4g64")},
        ),
    ],
)
def test_a_layer_that_drafts_has_few_bits(stated: dict[str, Any], becomes: dict[str, Any]) -> None:
    found = QuantizeWeights.from_options(stated).for_draft_layer(["a", "b"])
    assert found.method == "round"
    assert {name: getattr(found, name) for name in becomes} == becomes


def test_a_table_behind_one_that_stays_float_is_quantized() -> None:
    model = dense_model(Dense(tied=True))
    first = model.graph[0]
    table = ir.Value(name="places", const_value=as_lazy(ir.tensor(f32(61, 32), name="places")))
    model.graph.register_initializer(table)
    other = ir.Node("", "Gather", [table, model.graph.inputs[0]], name="other")
    model.graph.insert_after(first, other)
    report = QuantizeWeights(head=False).run(model)
    assert report.details["embedding int8 per row"] == 1
    assert "the tied head stays float, so the embedding does too" in report.skipped[-1]


def test_scales_of_activations_are_one_a_row() -> None:
    nodes = "t = Tanh (x) u = MatMul (t, w) y = MatMul (u, head)"
    weights = {"w": f32(32, 32), "head": f32(32, 10)}
    model = model_of("g (float[B,S,32] x) => (float[B,S,10] y)", nodes, weights)
    model.graph[0].outputs[0].shape = ir.Shape(("B", "S", 32))
    QuantizeWeights().run(model)
    quantize = next(node for node in model.graph if node.op_type == "QuantizeActivation")
    assert [value.shape for value in quantize.outputs] == [
        ir.Shape(("B", "S", 32)),
        ir.Shape(("B", "S", 1)),
    ]
