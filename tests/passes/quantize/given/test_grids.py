"""Weights that are quantized already keep their grid, or are rounded again and named."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.linear import find_linears, head_of
from optc.ir.pipeline.base import PassContext, PassReport
from optc.ir.quantized_rows import QuantizedPart, QuantizedRows
from optc.ir.weights import Given, LazyWeight
from optc.passes.numerics.affine import dequantize_rows, quantize_rows
from optc.passes.numerics.scheme import Scheme
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.given.grids import GivenWeights, scheme_of_rows
from optc.passes.quantize.kept_rows import find_rows, keep_rows
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.propagate.replace import QuantizeLayers
from optc.passes.quantize.propagate.stages import CorrectedStages
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.calibration import CalibrationStore, calibration_of, weights_of
from optc.proof.reference.streams.stage import Stage
from optc.proof.reference.two_streams import Seen
from tests.support.ir_text import Array, f32, model_of
from tests.support.models import Dense, dense_model
from tests.support.ragged import run

INT4 = Scheme(4, 32, True)
INT8 = Scheme(8, 32, True)
UINT4 = Scheme(4, 32, False)
CHANNEL = Scheme(8, 0, True)
INT6_HEAD: dict[str, Any] = {
    "bits": 4,
    "group_size": 32,
    "symmetric": False,
    "group_scales": "int",
    "head_bits": 6,
}


def given(array: Array, scheme: Scheme, label: str, name: str) -> LazyWeight:
    """A weight [N, K] as a checkpoint would hold it on a grid."""
    tile = quantize_rows(array, scheme, name)
    floats = dequantize_rows(tile, scheme.group_size)

    def read(start: int, stop: int) -> Any:
        return type(tile)(*(None if part is None else part[start:stop] for part in tile))

    rows = QuantizedRows(read, *array.shape, scheme.bits, scheme.group_size, scheme.symmetric, name)
    return LazyWeight(
        lambda start, stop: floats[start:stop],
        array.shape,
        ir.DataType.FLOAT,
        name,
        given=Given(label, rows),
    )


def model(**weights: LazyWeight) -> ir.Model:
    """x through one layer after the other."""
    names = list(weights)
    nodes = "\n".join(
        f"{new} = MatMul ({old}, {name})"
        for name, old, new in zip(
            names, ["x", *names], [*(f"{n}_out" for n in names[:-1]), "y"], strict=False
        )
    )
    for name in names[:-1]:
        nodes = nodes.replace(f"({name},", f"({name}_out,")
    arrays = {name: np.zeros(one.rows_shape[::-1], np.float32) for name, one in weights.items()}
    last = weights[names[-1]].rows_shape[0]
    made = model_of(f"g (float[S,64] x) => (float[S,{last}] y)", nodes, arrays)
    for name, one in weights.items():
        made.graph.initializers[name].const_value = one.transpose()
    return made


def weight(name: str, scheme: Scheme = INT4, label: str = "Q4_0", rows: int = 64) -> LazyWeight:
    return given(f32(rows, 64), scheme, label, name)


def test_a_grid_of_no_more_bits_is_kept_bit_for_bit() -> None:
    a, b = weight("a"), weight("b", INT8, "Q8_0")
    made = model(a=a, b=b)
    report = QuantizeWeights(bits=8, embedding=False).run(made)
    assert report.details == {
        "int4 groups of 32 as given": 1,
        "int8 groups of 32 as given": 1,
    }
    assert report.warnings == []
    for name, one in (("a", a), ("b", b)):
        values = made.graph.initializers[f"{name}.quantized"].const_value
        assert isinstance(values, LazyWeight)
        tile = values.whole.read(0, 64)  # type: ignore[attr-defined]
        assert one.given is not None
        assert one.given.rows is not None
        np.testing.assert_array_equal(tile.values, one.given.rows.read(0, 64).values)
        np.testing.assert_array_equal(dequantize_rows(tile, 32), one.read_rows(0, 64))
    nodes = [node for node in made.graph if node.op_type == "QuantizedMatMul"]
    found = [(n.attributes.get_int("bits"), n.attributes.get_int("group_size")) for n in nodes]
    assert found == [(4, 32), (8, 32)]


@pytest.mark.parametrize(
    ("layer", "bits", "read"),
    [
        ("kept", 16, [16, 16]),
        ("kept", 8, [8, 8]),
        ("eight", 16, [8, 8]),
        ("float", 16, [8, 8]),
    ],
)
@pytest.mark.parametrize("head", ["eight", "float"])
def test_a_head_behind_layers_on_their_grid_reads_as_many_bits(
    layer: str, bits: int, read: list[int], head: str
) -> None:
    grids = {"kept": (INT4, "Q4_0"), "eight": (INT8, "Q8_0"), "float": (INT8, "Q8_0")}
    parts = {name: weight(name, *grids[kind]) for name, kind in (("a", layer), ("head", head))}
    for name, kind in (("a", layer), ("head", head)):
        parts[name].given = None if kind == "float" else parts[name].given
    made = model(**parts)
    QuantizeWeights(given_activation_bits=bits, embedding=False).run(made)
    activations = [node for node in made.graph if node.op_type == "QuantizeActivation"]
    assert [node.attributes.get_int("bits", 8) for node in activations] == read


def test_more_bits_and_other_types_are_rounded_again_and_named() -> None:
    unknown = weight("c")
    unknown.given = Given("Q4_K")
    made = model(a=weight("a", INT8, "Q8_0"), c=unknown, d=weight("d", INT8, "Q8_0"))
    report = QuantizeWeights(bits=4, group_size=32, head=True, head_bits=4, embedding=False)
    done = report.run(made)
    assert done.details == {"int4 groups of 32": 3}
    assert done.warnings == [
        "1 weight of the checkpoint in Q4_K is quantized again, to int4 groups of 32; the gates "
        "measure the loss against the dequantized weights",
        "2 weights of the checkpoint in Q8_0 are quantized again, to int4 groups of 32; the gates "
        "measure the loss against the dequantized weights",
    ]


@pytest.mark.parametrize(
    ("keep", "kept"), [("keep", {"a", "b"}), ("symmetric", {"a"}), ("requantize", set())]
)
def test_an_option_says_which_grids_are_kept(keep: str, kept: set[str]) -> None:
    made = model(a=weight("a"), b=weight("b", UINT4, "awq"))
    report = QuantizeWeights(given=keep, embedding=False).run(made)
    count = sum(n for label, n in report.details.items() if label.endswith("as given"))
    assert count == len(kept)
    assert ("b.zero_point" in made.graph.initializers) == ("b" in kept)
    with pytest.raises(InputError, match="given=none is not possible"):
        QuantizeWeights(given="none")


def test_merged_layers_keep_what_all_parts_have() -> None:
    four, eight = weight("q", rows=32), weight("k", INT8, "Q8_0", rows=64)
    joined = Given.joined([four.given, eight.given])
    assert joined is not None
    assert joined.rows is not None
    assert joined.label == "Q4_0, Q8_0"
    assert (joined.rows.bits, joined.rows.rows, scheme_of_rows(joined.rows)) == (8, 96, INT8)
    expected = np.concatenate([four.read_rows(20, 32), eight.read_rows(0, 40)])
    np.testing.assert_array_equal(dequantize_rows(joined.rows.read(20, 72), 32), expected)
    assert Given.joined([four.given, weight("v", UINT4).given]) == Given("Q4_0")
    assert Given.joined([four.given, None]) == Given("Q4_0")
    assert Given.joined([None, None]) is None


def test_a_weight_that_was_changed_has_its_label_only() -> None:
    one = weight("a")
    scaled = one.map_rows(lambda rows: rows * 2, ir.DataType.FLOAT)
    assert scaled.given == Given("Q4_0")
    assert one.transpose().given is one.given
    given_weights = GivenWeights()
    assert given_weights.rows(scaled, CHANNEL, "a") is None
    given_weights.count(scaled, CHANNEL)
    assert given_weights.again == {("Q4_0", "int8 per channel"): 1}


def test_an_untied_embedding_keeps_its_grid_or_is_named() -> None:
    def lookup(table: LazyWeight) -> ir.Model:
        made = dense_model(Dense(hidden=64, windows=(0,)))
        made.graph.initializers["embed.weight"].const_value = table
        return made

    kept = QuantizeWeights().run(lookup(weight("table", rows=61)))
    assert kept.details["embedding int4 groups of 32 as given"] == 1
    assert kept.warnings == []
    other = weight("table", rows=61)
    other.given = Given("Q6_K")
    report = QuantizeWeights().run(lookup(other))
    assert report.details["embedding int8 per row"] == 1
    assert report.warnings[0].startswith("1 weight of the checkpoint in Q6_K is quantized again")


def test_errors_are_not_propagated_into_weights_that_stay() -> None:
    made = model(a=weight("a"), b=weight("b", INT8, "Q8_0"))
    linears = find_linears(made)
    store, report = CalibrationStore(0), PassReport()
    layers = QuantizeLayers(QuantizeWeights(bits=4, group_size=32), store, report)
    replaced = layers(linears, np.eye(64), {})
    assert set(replaced) == {linears[1].initializer}, "Q4_0 has no more bits than 4"
    assert report.details == {"linear layer as given": 1, "linear layer": 1}
    assert find_rows(store, linears[0], INT4, "a") is None
    assert find_rows(store, linears[1], INT4, "b") is not None


def test_nothing_is_summed_over_an_input_whose_readers_all_stay() -> None:
    made = model(a=weight("a"), b=weight("b"))
    linears = tuple(find_linears(made))
    store, report = CalibrationStore(0), PassReport()
    layers = QuantizeLayers(QuantizeWeights(bits=4, group_size=32), store, report)
    stages = CorrectedStages(layers, store, report, 0.5, 64, stays=layers.is_given)
    assert stages.weights(Stage((), (), (), linears), Seen({}, {}, Mock(spec=[]))) == {}
    assert all(map(stages.has, linears))
    assert report.details == {"linear layer as given": 2}


def plain(name: str) -> LazyWeight:
    """A weight that the checkpoint holds in floats."""
    floats = f32(64, 64)
    return LazyWeight(lambda a, b: floats[a:b], floats.shape, ir.DataType.FLOAT, name)


@pytest.mark.parametrize(
    ("names", "options", "reads"),
    [
        ("ab", {"bits": 8}, False),
        ("abf", {"bits": 8}, True),
        ("abf", INT6_HEAD, True),
        ("afb", {"bits": 8}, True),
    ],
)
def test_no_text_is_read_where_every_layer_stays(
    names: str, options: dict[str, Any], reads: bool
) -> None:
    """The last one is the head; ``f`` comes in floats."""
    made = model(**{one: plain(one) if one == "f" else weight(one) for one in names})
    with patch.object(PropagateErrors, "tokens", side_effect=InputError("a text is wanted")):
        if reads:
            with pytest.raises(InputError, match="a text is wanted"):
                PropagateErrors().run(made, PassContext(later=(QuantizeWeights(**options),)))
            return
        report = PropagateErrors().run(made, PassContext(later=(QuantizeWeights(**options),)))
    assert report.details == {"linear layer as given": len(names)}
    assert report.facts == {"tokens": 0}


def test_the_head_alone_is_told_by_few_windows() -> None:
    made = model(a=weight("a"), f=plain("f"))
    later = [QuantizeWeights(**INT6_HEAD)]
    ids = np.arange(64 * 4, dtype=np.int32).reshape(64, 4)
    with (
        patch.object(PropagateErrors, "tokens", return_value=ids),
        patch.object(PropagateErrors, "recall", side_effect=InputError("enough")) as recall,
        pytest.raises(InputError, match="enough"),
    ):
        PropagateErrors().run(made, PassContext(later=tuple(later)))
    assert recall.call_args.args[1].shape == (4, 4)


def decoder_on_a_grid(scheme: Scheme) -> ir.Model:
    """A decoder whose layers are on a checkpoint's grid, and its head in floats."""
    made = dense_model(Dense())
    head = head_of(made)
    for linear in find_linears(made):
        if head is None or linear.initializer is not head.initializer:
            rows = linear.weight.read_rows(0, linear.weight.rows_shape[0])
            kept = given(rows, scheme, "Q", linear.name)
            shown = kept.transpose() if linear.weight.transposed else kept
            linear.initializer.const_value = shown
    return made


def test_the_heads_hessian_is_that_of_what_it_reads() -> None:
    made = decoder_on_a_grid(CHANNEL)
    head = head_of(made)
    assert head is not None
    ids = np.random.default_rng(0).integers(1, 30, (6, 16)).astype(np.int32)
    with patch.object(PropagateErrors, "tokens", return_value=ids):
        report = PropagateErrors().run(made, PassContext(later=(QuantizeWeights(bits=8),)))
    assert report.details["head"] == 1
    assert report.facts["head_tokens"] == 4 * 16
    found = calibration_of(made).find(weights_of(head)[0], INPUT_HESSIAN)
    shown = made.clone()
    shown.graph.outputs.append(
        next(value for node in shown.graph for value in node.outputs if value.name == head.x.name)
    )
    some = ids[[0, 2, 3, 5]]
    places = np.broadcast_to(np.arange(16), some.shape).copy()
    read = run(shown, {"input_ids": some.astype(np.int64), "position_ids": places})[-1]
    flat = read.reshape(-1, read.shape[-1]).astype(np.float64)
    np.testing.assert_allclose(found, flat.T @ flat / len(flat), rtol=1e-4, atol=1e-6)


def test_what_an_earlier_pass_rounded_goes_before_the_checkpoint() -> None:
    made = model(a=weight("a"), b=weight("b"))
    (first, _), store = find_linears(made), calibration_of(made)
    rounded = quantize_rows(f32(64, 64, seed=9), INT4, "a")
    keep_rows(store, first, INT4, rounded)
    report = QuantizeWeights(bits=4, group_size=32, head_bits=4, embedding=False).run(made)
    assert report.details == {"int4 groups of 32": 1, "int4 groups of 32 as given": 1}
    values = made.graph.initializers["a.quantized"].const_value
    assert isinstance(values, QuantizedPart)
    np.testing.assert_array_equal(values.whole.read(0, 64).values, rounded.values)
