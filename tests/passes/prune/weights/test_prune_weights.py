"""`prune-weights` in a pipeline: the graph stays, zeros are exact, and orders are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError
from optc.ir.forms.decoder import Dense
from optc.ir.linear import Linear, find_linears, head_of
from optc.ir.pipeline.base import Pass, PassContext
from optc.ir.pipeline.pipeline import Pipeline
from optc.ir.quantized_rows import QuantizedPart
from optc.ir.weights import LazyWeight
from optc.passes.fuse.qkv import FuseQKV
from optc.passes.kv_cache.kv_cache import KVCache
from optc.passes.numerics.affine import dequantize_rows
from optc.passes.prune.weights.amounts import Amount
from optc.passes.prune.weights.methods import CHANGE, CHOOSE
from optc.passes.prune.weights.prune_weights import PruneWeights
from optc.passes.prune.weights.scores import by_magnitude
from optc.passes.quantize.calibrate import Calibrate
from optc.passes.quantize.propagate import stages
from optc.passes.quantize.propagate.propagate_errors import PropagateErrors
from optc.passes.quantize.propagate.stages import rows_of
from optc.passes.quantize.quantize_static import QuantizeStatic
from optc.passes.quantize.quantize_weights import QuantizeWeights
from optc.passes.quantize.rotate.rotate import Rotate
from optc.passes.quantize.smooth.smooth import Smooth
from optc.proof.reference.blockwise import BlockwiseReference
from tests.support.dense_models import dense_model
from tests.support.ir_text import model_of, nodes_text
from tests.support.letters import letters_folder

SIZES: dict[str, object] = {"windows": 32, "window_tokens": 64}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder with a tokenizer of a token a letter, and a text of random letters."""
    return letters_folder(tmp_path_factory.mktemp("letters"))


def prune(folder: Path, **options: object) -> PruneWeights:
    text = {"text": str(folder / "text.txt"), "folder": str(folder)}
    return PruneWeights(**(SIZES | text | options))  # type: ignore[arg-type]


def body(model: ir.Model) -> dict[str, Linear]:
    head = head_of(model)
    assert head is not None
    return {one.name: one for one in find_linears(model) if one.name != head.name}


def hidden(model: ir.Model) -> np.ndarray:
    tokens = np.random.default_rng(5).integers(0, 26, (24, 64), np.int32)
    return BlockwiseReference(model, 1).run(tokens).copy()


def lost(model: ir.Model) -> float:
    return float(np.mean((hidden(model) - hidden(dense_model(2))) ** 2))


def sparsity(rows: np.ndarray) -> float:
    return 1 - np.count_nonzero(rows) / rows.size


def zeros(model: ir.Model) -> Mapping[str, np.ndarray]:
    return {name: rows_of(one) == 0 for name, one in body(model).items()}


def test_the_graph_stays_and_only_weights_of_layers_change() -> None:
    rng = np.random.default_rng(0)
    w, head = (rng.standard_normal(s).astype(np.float32) for s in ((8, 12), (12, 20)))
    nodes = "h = MatMul(x, w)\n y = MatMul(h, head)"
    model = model_of("g (float[B,8] x) => (float[B,20] y)", nodes, {"w": w, "head": head})
    Dense().attach(model)
    before = nodes_text(model)
    report = PruneWeights(method="magnitude", pattern="2:4").run(model)
    assert nodes_text(model) == before
    pruned, last = find_linears(model)
    expected = w.T * by_magnitude(np.ascontiguousarray(w.T), Amount(0.5, 2, 4))
    np.testing.assert_array_equal(rows_of(pruned), expected)
    np.testing.assert_array_equal(rows_of(last), head.T)
    assert report.details == {"2:4": 1}
    assert report.facts == {"weights": 96, "sparsity": 0.5}


def test_clones_from_before_stay_dense() -> None:
    """Gates compare with one."""
    model, dense = dense_model(1), dense_model(1)
    before = model.clone()
    PruneWeights(method="magnitude").run(model)
    for clone, original in zip(body(before).values(), body(dense).values(), strict=True):
        np.testing.assert_array_equal(rows_of(clone), rows_of(original))
        assert not clone.pruned


@pytest.mark.parametrize("method", [*CHOOSE, *CHANGE])
def test_half_of_each_input_s_weights_are_zero(method: str, folder: Path) -> None:
    model, before = dense_model(2), dense_model(2)
    report = prune(folder, method=method).run(model)
    parts = body(model)
    for names in (("q", "k", "v"), ("o",), ("gate", "up"), ("down",)):
        rows = np.concatenate([rows_of(parts[f"l0.{name}"]) for name in names])
        assert sparsity(rows) == pytest.approx(0.5, abs=0.01)
    assert report.facts["sparsity"] == pytest.approx(0.5, abs=0.005)
    assert report.count == len(parts)
    head, old = head_of(model), head_of(before)
    assert head is not None
    assert old is not None
    np.testing.assert_array_equal(rows_of(head), rows_of(old))
    assert all(one.pruned for one in parts.values())
    assert not head.pruned


def test_better_methods_lose_less(folder: Path) -> None:
    found = []
    for method, sequential in (("wanda", False), ("sparsegpt", False), ("admm", False)):
        model = dense_model(2)
        prune(folder, method=method, sequential=sequential, windows=64).run(model)
        found.append(lost(model))
    model = dense_model(2)
    report = prune(folder, windows=64).run(model)
    found.append(lost(model))
    assert report.details["corrected"] > 0
    assert found == sorted(found, reverse=True), "wanda, sparsegpt, admm, and with its target"
    assert found[-1] < 0.8 * found[0]


@pytest.mark.parametrize("method", ["wanda", "sparsegpt", "admm"])
@pytest.mark.parametrize("pattern", ["2:4", "4:8"])
def test_patterns_hold_exactly(method: str, pattern: str, folder: Path) -> None:
    model = dense_model(1)
    prune(folder, method=method, pattern=pattern).run(model)
    kept, of = map(int, pattern.split(":"))
    for one in body(model).values():
        assert (np.count_nonzero(rows_of(one).reshape(-1, of), axis=1) <= kept).all()
        assert sparsity(rows_of(one)) == pytest.approx(0.5, abs=0.001)


def test_layers_have_sparsities_of_their_own(folder: Path) -> None:
    model = dense_model(2)
    options = ("*.down=0.75", "l1.*=0")
    report = prune(folder, method="wanda", layer_sparsity=options).run(model)
    parts = body(model)
    assert sparsity(rows_of(parts["l0.down"])) == 0.75
    assert sparsity(rows_of(parts["l1.down"])) == 0
    assert not parts["l1.down"].pruned
    assert sum("it stays dense" in line for line in report.skipped) == 7
    with pytest.raises(InputError, match=r"no linear layer has a weight 'l7\.\*'"):
        prune(folder, method="magnitude", layer_sparsity=("l7.*=0",)).run(dense_model(1))


def test_a_part_has_the_options_of_its_weights() -> None:
    one = PruneWeights(layer_sparsity=("l0.*=0.6", "l5.*=0.7"))
    assert one.for_part(dense_model(1)).layer_sparsity == ("l0.*=0.6",)


def test_a_calibration_is_found_again(folder: Path, tmp_path: Path) -> None:
    one = prune(folder, method="sparsegpt", cache=str(tmp_path))
    first, second = dense_model(1), dense_model(1)
    one.run(first)
    assert one.run(second).facts["from_cache"]
    for mine, theirs in zip(body(first).values(), body(second).values(), strict=True):
        np.testing.assert_array_equal(rows_of(mine), rows_of(theirs))
        assert theirs.pruned
    assert "from_cache" not in replace(one, sparsity=0.6).run(dense_model(1)).facts


def test_layers_with_too_few_tokens_are_pruned_and_not_corrected(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "TOKENS_PER_INPUT", 1 << 20)
    report = prune(folder, method="sparsegpt").run(dense_model(1))
    assert "corrected" not in report.details
    assert any("tokens are too few to correct" in line for line in report.skipped)


GRIDS = {
    "int8": QuantizeWeights(),
    "int4, gptq": QuantizeWeights(bits=4, group_size=32, symmetric=False, method="gptq"),
    "int2, integer scales": QuantizeWeights(
        bits=2, group_size=32, symmetric=False, group_scales="int"
    ),
}


@pytest.mark.parametrize("grid", GRIDS)
def test_zeros_survive_quantization(grid: str, folder: Path) -> None:
    """Behind `propagate-errors`, whose targets are dense, and merged."""
    model, quantize = dense_model(1), GRIDS[grid]
    one = prune(folder, method="wanda")
    one.run(model)
    gone = zeros(model)
    text = {"text": one.text, "folder": one.folder, "windows": 32, "window_tokens": 64}
    Pipeline((PropagateErrors(**text), FuseQKV(), quantize)).run(model)  # type: ignore[arg-type]
    checked = 0
    for value in model.graph.initializers.values():
        part = value.const_value
        if not isinstance(part, QuantizedPart) or not str(value.name).endswith(".quantized"):
            continue
        rows = dequantize_rows(part.whole.read(0, part.whole.rows), part.whole.group_size)
        names = [name for name in gone if name == str(value.name).removesuffix(".quantized")]
        names = names or (["l0.q", "l0.k", "l0.v"] if "q+k+v" in str(value.name) else [])
        for name in names:
            mask = gone[name]
            here, rows = rows[: len(mask)], rows[len(mask) :]
            assert not here[mask].any()
            assert np.count_nonzero(here) > 0.3 * here.size
            checked += 1
    assert checked == len(gone)


@pytest.mark.parametrize("dtype", ["int8", "fp8", "nvfp4"])
def test_zeros_survive_static_quantization(dtype: str, folder: Path) -> None:
    model = dense_model(1)
    text = {"text": str(folder / "text.txt"), "folder": str(folder), "window_tokens": 64}
    prune = PruneWeights(method="magnitude")
    calibrate = Calibrate(**text, windows=2)  # type: ignore[arg-type]
    prune.run(model)
    gone = zeros(model)
    Pipeline((calibrate, KVCache(), QuantizeStatic(dtype=dtype))).run(model)
    for name, mask in gone.items():
        tensors = [
            one.const_value
            for key, one in model.graph.initializers.items()
            if key.startswith(f"{name}.")
        ]
        (weight,) = (
            one for one in tensors if isinstance(one, LazyWeight) and one.rows_shape == mask.shape
        )
        rows = np.asarray(weight.read_rows(0, len(mask))).astype(np.float32)
        assert not rows[mask].any()
        assert np.count_nonzero(rows) > 0.3 * rows.size


def test_a_plan_reads_no_text_and_has_as_many_zeros() -> None:
    model = dense_model(1)
    one = PruneWeights(folder="x", layer_sparsity=("*.down=0", "*.up=2:4"))
    report = one.run(model, PassContext(dry=True))
    parts = body(model)
    assert report.details == {"50 %": 5, "2:4": 1}
    assert sparsity(rows_of(parts["l0.gate"])) == 0.5
    assert (np.count_nonzero(rows_of(parts["l0.up"]).reshape(-1, 4), axis=1) == 2).all()
    assert not parts["l0.down"].pruned


LATER: tuple[Pass, ...] = (FuseQKV(), QuantizeWeights(), PropagateErrors(), QuantizeStatic())


@pytest.mark.parametrize("early", LATER, ids=lambda one: one.name)
def test_what_must_come_later_is_refused_before(early: Pass) -> None:
    with pytest.raises(InputError, match=f"prune-weights must come before {early.name}"):
        Pipeline((early, PruneWeights())).validate()


@pytest.mark.parametrize("late", [Rotate(), Smooth()], ids=lambda one: one.name)
def test_what_would_undo_it_is_refused_behind(late: Pass) -> None:
    with pytest.raises(InputError, match=f"{late.name} must come before prune-weights"):
        Pipeline((PruneWeights(), late)).validate()


def test_a_step_is_refused_by_its_form() -> None:
    with pytest.raises(InputError, match="prune-weights takes the dense form, and is given"):
        Pipeline((KVCache(), PruneWeights())).validate(Dense)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "best"}, "method=best is not possible"),
        ({"pattern": "1:2"}, "pattern=1:2 is not possible (one of , 2:4, 4:8)"),
        ({"sparsity": 1.0}, "sparsity=1.0 is not 0 to less than 1"),
        ({"sparsity": -0.1}, "sparsity=-0.1 is not 0 to less than 1"),
        (
            {"sparsity": 0.6, "pattern": "2:4"},
            "sparsity=0.6 and pattern=2:4 exclude each other (leave one of them out)",
        ),
        ({"layer_sparsity": ("a",)}, "'a' is not tensor=sparsity"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        PruneWeights(**options)  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"pass prune-weights: {message}")


def test_methods_that_read_a_text_need_a_tokenizer() -> None:
    with pytest.raises(InputError, match="nothing says whose tokenizer reads the text"):
        PruneWeights().requires(dense_model(1))
    PruneWeights(method="magnitude").requires(dense_model(1))
