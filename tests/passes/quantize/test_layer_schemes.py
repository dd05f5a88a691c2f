"""``layer_bits``: formats of single weights, and what is said of those that are none."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.linear import find_linears
from optc.ir.pipeline.base import PassReport
from optc.ir.sources import Source, sources_metadata
from optc.passes.numerics.affine import quantize_rows
from optc.passes.numerics.scheme import Scheme
from optc.passes.quantize.layer_schemes import (
    PER_CHANNEL,
    LayerSchemes,
    fitting,
    format_text,
    read_format,
    stored_bits,
)
from optc.passes.quantize.quantize_weights import QuantizeWeights
from tests.support.ir_text import expected, f32, model_of, nodes_text

INTEGER = Scheme(4, 32, symmetric=False, integer_scales=True)
FLOAT = Scheme(4, 32, symmetric=False)
WEIGHTS = {"wa": f32(64, 96), "wb": f32(96, 64, seed=1), "head": f32(64, 10, seed=2)}
NODES = "a = MatMul (x, wa)\nb = MatMul (a, wb)\ny = MatMul (b, head)"
BASE = {"bits": 4, "group_size": 32, "symmetric": False, "group_scales": "int", "head_bits": 6}


def model() -> ir.Model:
    return model_of("g (float[S,64] x) => (float[S,10] y)", NODES, WEIGHTS)


def passing(*texts: str) -> QuantizeWeights:
    return QuantizeWeights(**BASE, layer_bits=texts)  # type: ignore[arg-type]


def test_each_weight_gets_its_own_format() -> None:
    one, quantized = passing("wa=3g64", "head=8"), model()
    report = one.run(quantized)
    assert nodes_text(quantized) == expected(
        """
        x.q, x.s = optc.QuantizeActivation (x)
        a = optc.QuantizedMatMul <bits = 3, group_size = 64> (x.q, x.s, wa.quantized, wa.scale, \
wa.zero_point, , wa.group_scale)
        a.q, a.s = optc.QuantizeActivation (a)
        b = optc.QuantizedMatMul <bits = 4, group_size = 32> (a.q, a.s, wb.quantized, wb.scale, \
wb.zero_point, , wb.group_scale)
        b.q, b.s = optc.QuantizeActivation (b)
        y = optc.QuantizedMatMul <bits = 8, group_size = 0> (b.q, b.s, head.quantized, \
head.scale)"""
    )
    bits = 96 * (64 * 3 + 16 + 32) + 64 * (96 * 4 + 3 * 16 + 32) + 10 * (64 * 8 + 32)
    assert report.facts["bits_per_weight"] == bits / (2 * 64 * 96 + 640)
    assert one.spec().endswith("layer_bits=[wa=3g64,head=8]}")


def test_values_are_those_of_the_format() -> None:
    quantized = model()
    passing("wa=3g64").run(quantized)
    rows = np.ascontiguousarray(WEIGHTS["wa"].T)
    tile = quantize_rows(rows, Scheme(3, 64, False, True))
    stored = quantized.graph.initializers["wa.quantized"].const_value
    assert stored is not None
    np.testing.assert_array_equal(stored.numpy(), tile.values.T)


def test_spec_and_options_read_back_the_same() -> None:
    one = passing("wa=3g64", "head=8")
    assert QuantizeWeights.from_options(one.stated_options()) == one
    assert QuantizeWeights.from_options({**BASE, "layer_bits": "[wa=3g64, head=8]"}) == one


@pytest.mark.parametrize("text", ["8", "4g32", "3g128", "2g64", "6g32", "5g64"])
def test_formats_are_read_as_they_are_written(text: str) -> None:
    assert format_text(read_format(text, INTEGER, "here")) == text


def test_a_format_without_a_group_has_that_of_the_others() -> None:
    assert read_format("3", INTEGER, "here") == Scheme(3, 32, False, True)
    assert read_format("8", FLOAT, "here") == PER_CHANNEL


@pytest.mark.parametrize("text", ["9", "4g48", "g32", "", "4g", "8g32", "44", "٣g32"])
def test_what_is_no_format_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_format(text, INTEGER, "here")
    assert str(caught.value) == (
        f"here: {text!r} is no format of a weight here "
        "(8, or bits (2, 3, 4, 5, 6) and a group's size, such as 4g32)"
    )


def test_few_bits_need_integer_scales() -> None:
    assert read_format("4g64", FLOAT, "here") == Scheme(4, 64, False)
    with pytest.raises(InputError, match=r"8, or bits \(4\)"):
        read_format("3g32", FLOAT, "here")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("wa",), "pass quantize-weights: 'wa' is not tensor=format"),
        (("=4",), "pass quantize-weights: '=4' is not tensor=format"),
        (("wa=4", "wa=3"), "pass quantize-weights: 'wa' is named twice"),
        (("wa=7g32",), "pass quantize-weights, wa: '7g32' is no format"),
    ],
)
def test_texts_that_are_none_are_refused(texts: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        passing(*texts)
    assert str(caught.value).startswith(message)


def test_a_name_that_no_layer_has_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        passing("w=3g32").run(model())
    assert str(caught.value) == (
        "pass quantize-weights: no linear layer has the weight 'w' (there are head, wa, wb, …)"
    )


def test_parts_of_a_merged_weight_must_agree() -> None:
    merged = model()
    origin = sources_metadata((Source("q", 0, 32), Source("k", 32, 96)))
    merged.graph.initializers["wa"].metadata_props.update(origin)
    with pytest.raises(InputError) as caught:
        passing("q=3g32", "k=4g32").run(merged)
    assert str(caught.value) == (
        "pass quantize-weights: tensors of one merged weight have different formats "
        "(q: 3g32, k: 4g32) (give them the same)"
    )
    with pytest.raises(InputError, match=r"\(q: 3g32, k: none\)"):
        passing("q=3g32").run(merged)
    report = passing("q=3g32", "k=3g32").run(merged)
    assert report.details["int3 groups of 32 asymmetric, integer"] == 1


def test_a_part_of_the_model_keeps_the_formats_of_its_weights() -> None:
    part = model_of(
        "g (float[S,64] x) => (float[S,96] y)", "y = MatMul (x, wa)", {"wa": WEIGHTS["wa"]}
    )
    assert passing("wa=3g64", "wb=2g32").for_part(part) == passing("wa=3g64")
    assert passing().for_part(part) == passing()


def test_samples_have_a_layer_of_each_format() -> None:
    found = {
        (node.attributes["bits"].as_int(), node.attributes["group_size"].as_int())
        for node in passing("wa=3g64", "wb=2g32").samples()
        if node.op_type == "QuantizedMatMul"
    }
    assert found == {(4, 32), (6, 32), (3, 64), (2, 32)}


def test_only_names_that_are_given_have_a_scheme() -> None:
    schemes = LayerSchemes.read(["wb=2g32"], INTEGER, "here")
    first, second, _ = find_linears(model())
    assert schemes.of(first) is None
    assert schemes.of(second) == Scheme(2, 32, False, True)
    assert schemes.texts_of([first]) == ()


@pytest.mark.parametrize(
    ("scheme", "bits"),
    [
        (PER_CHANNEL, 2 * (64 * 8 + 32)),
        (Scheme(4, 32, True), 2 * (64 * 4 + 2 * 16)),
        (Scheme(4, 32, False), 2 * (64 * 4 + 2 * 20)),
        (Scheme(3, 64, False, True), 2 * (64 * 3 + 16 + 32)),
    ],
)
def test_stored_bits_count_scales_and_zero_points(scheme: Scheme, bits: int) -> None:
    assert stored_bits(scheme, 2, 64) == bits


def test_weights_of_a_smaller_group_have_the_bits_that_were_asked_for() -> None:
    """Those of int8 in the place of int4 have not: a warning counts them."""
    linears = {one.name: one for one in find_linears(model())}
    wide, odd = linears["wb"], linears["wa"]
    report = PassReport()
    assert fitting(Scheme(4, 32, symmetric=False), wide, report).group_size == 32
    assert (report.missed, report.skipped) == (0, [])
    assert fitting(Scheme(4, 64, symmetric=False), wide, report).group_size == 32
    assert (report.missed, len(report.skipped)) == (0, 1)
    assert odd.weight.rows_shape[1] == 64
