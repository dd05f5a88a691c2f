"""`propagate-errors` in a pipeline: what it corrects, what it leaves, and what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.linear import Linear, find_linear, head_of
from optc.ir.pipeline.base import PassContext
from optc.ir.pipeline.pipeline import Pipeline
from optc.ir.quantized_rows import QuantizedPart, QuantizedTile
from optc.ir.sources import sources_of
from optc.ir.weights import as_lazy
from optc.passes.fuse.qkv import FuseQKV
from optc.passes.numerics.affine import dequantize_rows, quantize_rows
from optc.passes.numerics.scheme import Scheme
from optc.passes.numerics.statistics import INPUT_HESSIAN
from optc.passes.quantize.kept_rows import find_rows
from optc.passes.quantize.propagate import stages as module
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.calibration import calibration_of, find_statistics
from optc.proof.reference.streams.choice import has_int8
from tests.support.dense_models import V, dense_model
from tests.support.letters import letters_folder

INT4 = QuantizeWeights(bits=4, group_size=32, symmetric=False)
WHERE = "pass propagate-errors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a tokenizer of a token a letter, and a text of random letters."""
    return letters_folder(tmp_path)


def propagate(folder: Path, **options: float | str) -> PropagateErrors:
    text, sizes = str(folder / "text.txt"), {"windows": 48, "window_tokens": 64} | options
    return PropagateErrors(text=text, folder=str(folder), **sizes)  # type: ignore[arg-type]


def linears(model: ir.Model) -> list[Linear]:
    return [linear for node in model.graph if (linear := find_linear(node)) is not None]


def rows_of(linear: Linear) -> np.ndarray:
    return np.asarray(linear.weight.read_rows(0, linear.weight.rows_shape[0]), np.float32)


def rounded(model: ir.Model) -> ir.Model:
    """The model with the weights of its layers, the head's apart, plainly rounded to the grid."""
    return with_rows(model, lambda one: dequantize_rows(plainly(one), scheme_of(one).group_size))


def kept(model: ir.Model) -> ir.Model:
    """The model with the weights of its layers, the head's apart, as the pass has kept them."""

    def rows(linear: Linear) -> np.ndarray:
        scheme = scheme_of(linear)
        found = find_rows(calibration_of(model), linear, scheme, linear.name)
        assert found is not None
        return dequantize_rows(found.read(0, found.rows), scheme.group_size)

    return with_rows(model, rows)


def with_rows(model: ir.Model, rows: Callable[[Linear], np.ndarray]) -> ir.Model:
    head = head_of(model)
    for linear in linears(model):
        if head is not None and linear.initializer is not head.initializer:
            linear.initializer.const_value = as_lazy(ir.tensor(rows(linear))).transpose()
    return model


def plainly(linear: Linear) -> QuantizedTile:
    return quantize_rows(rows_of(linear), scheme_of(linear))


def scheme_of(linear: Linear) -> Scheme:
    divides = linear.weight.rows_shape[1] % 32 == 0
    return Scheme(4, 32, False) if divides else Scheme(8, 0, True)


def hidden(model: ir.Model) -> np.ndarray:
    tokens = np.random.default_rng(5).integers(0, 26, (40, 64), np.int32)
    return BlockwiseReference(model, 1).run(tokens).copy()


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_the_quantized_model_is_nearer_to_the_original_than_without(
    folder: Path, strength: float
) -> None:
    assert V > 31
    original, plain = hidden(dense_model(3)), hidden(rounded(dense_model(3)))
    model = dense_model(3)
    report = propagate(folder, strength=strength).run(model, PassContext(later=(INT4,)))
    assert report.details["corrected"] == report.details["linear layer"] - 3
    assert report.details["linear layer"] == len(linears(model)) - 1
    lost = [float(np.mean((one - original) ** 2)) for one in (hidden(kept(model)), plain)]
    assert lost[0] < 0.95 * lost[1]


def test_the_graph_and_its_weights_stay_and_first_layers_are_not_corrected(folder: Path) -> None:
    model, before = dense_model(2), dense_model(2)
    propagate(folder).run(model, PassContext(later=(INT4,)))
    same = []
    for mine, theirs in zip(linears(model), linears(before), strict=True):
        np.testing.assert_array_equal(rows_of(mine), rows_of(theirs))
        scheme = scheme_of(mine)
        found = find_rows(calibration_of(model), mine, scheme, mine.name)
        if found is not None:
            values = found.read(0, found.rows).values
            same.append(bool((values == plainly(theirs).values).all()))
    assert len(same) == len(linears(model)) - 1  # nothing is kept of the head
    assert same[0]  # its input has no error yet
    assert not all(same)


def test_the_heads_hessian_is_that_of_what_quantized_layers_give_it(folder: Path) -> None:
    model = dense_model(2)
    one = propagate(folder, strength=0, products="float32")
    report = one.run(model, PassContext(later=(INT4,)))
    assert "corrected" not in report.details
    head = head_of(model)
    assert head is not None
    (found,) = find_statistics(calibration_of(model), head, INPUT_HESSIAN)
    x = BlockwiseReference(rounded(dense_model(2)), 1).run(one.tokens(model)).astype(np.float64)
    np.testing.assert_allclose(found, x.T @ x / len(x), rtol=1e-3, atol=1e-4)


def test_gptq_rounds_for_the_inputs_that_quantized_layers_give(folder: Path) -> None:
    model = dense_model(2)
    gptq = replace(INT4, method="gptq")
    propagate(folder).run(model, PassContext(later=(gptq,)))
    original, plain = hidden(dense_model(2)), hidden(rounded(dense_model(2)))
    near = hidden(kept(model))
    assert float(np.mean((near - original) ** 2)) < 0.8 * float(np.mean((plain - original) ** 2))


def test_quantize_weights_takes_what_it_kept_of_merged_layers_too(folder: Path) -> None:
    model = dense_model(2)
    records = Pipeline((propagate(folder), FuseQKV(), INT4)).run(model)
    assert [record.name for record in records] == ["propagate-errors", "fuse-qkv", INT4.name]
    store, again = calibration_of(model), dense_model(2)
    for linear in linears(again)[:-1]:
        scheme = scheme_of(linear)
        found = find_rows(store, linear, scheme, linear.name)
        assert found is not None
        wanted = found.read(0, found.rows).values
        (part,) = (
            value.const_value.whole
            for name, value in model.graph.initializers.items()
            if name.endswith(".quantized")
            and isinstance(value.const_value, QuantizedPart)
            and linear.name in {source.name for source in sources_of(value, 0)} | {name[:-10]}
        )
        rows = part.read(0, part.rows).values
        assert any(
            (rows[at : at + len(wanted)] == wanted).all()
            for at in range(len(rows) - len(wanted) + 1)
        )


def test_layers_with_too_few_tokens_are_named_and_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOKENS_PER_INPUT", 1 << 20)
    model, before = dense_model(1), dense_model(1)
    report = propagate(folder).run(model, PassContext(later=(INT4,)))
    assert "corrected" not in report.details
    assert any("3072 tokens are too few to correct" in line for line in report.skipped)
    found = find_rows(calibration_of(model), linears(model)[0], Scheme(8, 0, True), "w")
    assert found is not None
    np.testing.assert_array_equal(
        found.read(0, found.rows).values, plainly(linears(before)[0]).values
    )


def test_without_quantize_weights_it_says_what_is_missing(folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        propagate(folder).run(dense_model(1))
    assert str(caught.value) == (
        f"{WHERE}: no quantize-weights comes after it "
        "(leave it out, or put quantize-weights behind it)"
    )


def test_a_strength_that_is_no_share_is_refused() -> None:
    with pytest.raises(InputError, match=r"strength=1\.5 is not 0 to 1"):
        PropagateErrors(strength=1.5)


def test_weights_of_other_blocks_are_rounded_plainly(folder: Path) -> None:
    """No Hessian is there for them, nor for the head."""
    model, gptq = dense_model(3), replace(INT4, method="gptq")
    report = propagate(folder, blocks=1).run(model, PassContext(later=(gptq,)))
    gptq.run(model)
    same = {
        linear.name: bool((rounded_to(model, linear) == plainly(linear).values).all())
        for linear in linears(dense_model(3))
    }
    others = {name for name in same if not name.startswith("l0.")}
    assert report.details["linear layer"] == len(same) - len(others)
    assert report.details["rounded plainly"] == len(others)
    assert {name for name in others if not same[name]} == set()
    assert not same["l0.down"]


def rounded_to(model: ir.Model, linear: Linear) -> np.ndarray:
    value = model.graph.initializers[f"{linear.name}.quantized"].const_value
    assert isinstance(value, QuantizedPart)
    return value.whole.read(0, value.whole.rows).values


def test_products_of_int8_need_a_cpu_that_has_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optc.proof.reference.streams.choice.host_features", frozenset[str])
    one = propagate(folder, products="int8")
    with pytest.raises(InputError, match=r"products=int8 needs a CPU with AVX512-VNNI") as error:
        one.run(dense_model(1), PassContext(later=(INT4,)))
    assert error.value.where == WHERE


@pytest.mark.skipif(not has_int8(), reason="the CPU has no AVX512-VNNI")
def test_products_of_int8_correct_as_well(folder: Path) -> None:
    """What the last block's result loses, the rounding of activations included, is hardly more."""
    lost = []
    for products in ("float32", "auto", "int8"):
        model = dense_model(2)
        facts = propagate(folder, products=products).run(model, PassContext(later=(INT4,))).facts
        lost.append(10 ** (-facts["block_sqnr_db"][-1] / 10))
        assert facts["changed_products"] == ("float32" if products == "float32" else "int8")
        assert facts["products"] != "int8" or products == "int8"
    assert max(lost[1:]) < 1.2 * lost[0]


def test_a_negative_number_of_blocks_and_unknown_products_are_refused() -> None:
    with pytest.raises(InputError, match=r"blocks=-1 is negative"):
        PropagateErrors(blocks=-1)
    with pytest.raises(InputError, match=r"products=float16 is not possible.*bfloat16"):
        PropagateErrors(products="float16")
