"""`propagate-errors` in a pipeline: what it corrects, what it leaves, and what it lacks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.linear import Linear, find_linear, head_of
from optc.ir.weights import as_lazy
from optc.passes.quantize.affine import dequantize_rows, quantize_rows
from optc.passes.quantize.propagate import replace as module
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.scheme import Scheme
from optc.passes.quantize.statistics import INPUT_HESSIAN
from optc.pipeline.pipeline import Pipeline
from optc.reference.blockwise import BlockwiseReference
from optc.reference.calibration import calibration_of, find_statistics
from tests.support.dense_models import V, dense_model

INT4 = QuantizeWeights(bits=4, group_size=32, symmetric=False)
WHERE = "pass propagate-errors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a tokenizer of a token a letter, and a text of random letters."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = {chr(97 + i): i for i in range(26)}
    tokenizer = Tokenizer(models.WordLevel(letters | {"?": 26}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"bos_token_id": 30, "eos_token_id": [31]}))
    drawn = np.random.default_rng(0).integers(0, 26, 9000)
    (tmp_path / "text.txt").write_text("".join(chr(97 + i) for i in drawn))
    return tmp_path


def propagate(folder: Path, **options: float) -> PropagateErrors:
    text, sizes = str(folder / "text.txt"), {"windows": 48, "window_tokens": 64} | options
    return PropagateErrors(text=text, folder=str(folder), **sizes)  # type: ignore[arg-type]


def linears(model: ir.Model) -> list[Linear]:
    return [linear for node in model.graph if (linear := find_linear(node)) is not None]


def rows_of(linear: Linear) -> np.ndarray:
    return np.asarray(linear.weight.read_rows(0, linear.weight.rows_shape[0]), np.float32)


def rounded(model: ir.Model) -> ir.Model:
    """The model with the weights of its layers, the head's apart, on the grid."""
    head = head_of(model)
    for linear in linears(model):
        if head is not None and linear.initializer is head.initializer:
            continue
        size = 32 if linear.weight.rows_shape[1] % 32 == 0 else 0
        scheme = Scheme(4, 32, False) if size else Scheme(8, 0, True)
        near = dequantize_rows(quantize_rows(rows_of(linear), scheme), size)
        linear.initializer.const_value = as_lazy(ir.tensor(near)).transpose()
    return model


def hidden(model: ir.Model) -> np.ndarray:
    tokens = np.random.default_rng(5).integers(0, 26, (40, 64), np.int32)
    return BlockwiseReference(model, 1).run(tokens).copy()


def test_the_quantized_model_is_nearer_to_the_original_than_without(folder: Path) -> None:
    assert V > 31
    original = hidden(dense_model(3))
    plain = hidden(rounded(dense_model(3)))
    corrected = dense_model(3)
    report = propagate(folder).run_before(corrected, [INT4])
    assert report.details["corrected"] > 0
    assert report.details["linear layer"] == len(linears(corrected)) - 1
    lost = [float(np.mean((one - original) ** 2)) for one in (hidden(rounded(corrected)), plain)]
    assert lost[0] < 0.95 * lost[1]


def test_first_layers_and_the_head_keep_their_weights(folder: Path) -> None:
    model, before = dense_model(2), dense_model(2)
    propagate(folder).run_before(model, [INT4])
    same = [
        bool((rows_of(a) == rows_of(b)).all())
        for a, b in zip(linears(model), linears(before), strict=True)
    ]
    assert same[0]  # its input has no error yet
    assert same[-1]
    assert not all(same)


def test_hessians_are_those_of_the_quantized_models_inputs(folder: Path) -> None:
    model = dense_model(2)
    one = propagate(folder, strength=0)
    report = one.run_before(model, [INT4])
    assert "corrected" not in report.details
    head = head_of(model)
    assert head is not None
    (found,) = find_statistics(calibration_of(model), head, INPUT_HESSIAN)
    x = BlockwiseReference(rounded(dense_model(2)), 1).run(one.tokens()).astype(np.float64)
    np.testing.assert_allclose(found, x.T @ x / len(x), rtol=1e-3, atol=1e-4)


def test_what_it_corrected_is_what_is_quantized_later(folder: Path) -> None:
    """The pipeline tells it what comes; the corrected weights go into quantize-weights."""
    model, plain = dense_model(2), dense_model(2)
    records = Pipeline((propagate(folder), INT4)).run(model)
    assert [record.name for record in records] == ["propagate-errors", "quantize-weights"]
    Pipeline((INT4,)).run(plain)
    differ = [
        name
        for name, value in model.graph.initializers.items()
        if name.endswith(".quantized")
        and value.const_value is not None
        and (value.const_value.numpy() != plain.graph.initializers[name].const_value.numpy()).any()  # type: ignore[union-attr]
    ]
    assert differ


def test_layers_with_too_few_tokens_are_named_and_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOKENS_PER_INPUT", 1 << 20)
    model, before = dense_model(1), dense_model(1)
    report = propagate(folder).run_before(model, [INT4])
    assert "corrected" not in report.details
    assert any("3072 tokens are too few to correct" in line for line in report.skipped)
    for mine, theirs in zip(linears(model), linears(before), strict=True):
        np.testing.assert_array_equal(rows_of(mine), rows_of(theirs))


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


def test_without_a_text_it_says_how_to_give_one() -> None:
    with pytest.raises(InputError, match="there is no text to calibrate with"):
        PropagateErrors().requires(dense_model(1))
