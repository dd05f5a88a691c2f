"""Models run in pieces give what they give as a whole, in every form."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import UnsupportedError
from optc.proof.gates.bisect import model_run
from optc.proof.gates.bisect.model_run import cut_at, given_name, run_model
from optc.proof.gates.bisect.stages import logits_of
from optc.proof.gates.bisect.step_feeds import step_feed
from tests.passes.canonicalize.texts import exported
from tests.proof.reference.test_blockwise import whole_logits
from tests.support.dense_models import V, dense_model
from tests.support.models import Dense
from tests.support.models import dense_model as named_model
from tests.support.pipelines import pipeline_of
from tests.support.ragged import RaggedDriver

TOKENS = np.random.default_rng(3).integers(0, 61, (3, 21)).astype(np.int32)
WHOLE = 1 << 40


@pytest.mark.parametrize("size", [1, 20_000, WHOLE])
def test_pieces_of_any_size_give_the_logits_of_the_whole(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(model_run, "PIECE_BYTES", size)
    model = dense_model(2, window=4, bias=True, softcap=2.0)
    expected = whole_logits(model, TOKENS).reshape(-1, V)
    np.testing.assert_allclose(logits_of(model, TOKENS, 1), expected, atol=2e-5)


@pytest.mark.parametrize("size", [1, WHOLE])
@pytest.mark.parametrize(
    "passes",
    [
        "kv-cache{tree=true},fuse-residual-norm,fuse-rotary",
        "fuse-qkv,kv-cache,adapters{max=2,rank=4}",
        "fuse-qkv,kv-cache,cast-weights",
        "kv-cache,quantize-weights{bits=4,group_size=32},fuse-norm-quantize",
    ],
)
def test_steps_compute_the_logits_of_every_token(
    monkeypatch: pytest.MonkeyPatch, size: int, passes: str
) -> None:
    """Two groups of KV; windows are sequences of more than a block each."""
    monkeypatch.setattr(model_run, "PIECE_BYTES", size)
    model = named_model(Dense(windows=(0, 5), tied=True))
    expected = logits_of(model, TOKENS, 1)
    pipeline_of(passes).run(model)
    if "weights" in passes:
        expected = RaggedDriver(model).step(dict(enumerate(TOKENS.tolist())))
    found = logits_of(model, TOKENS, 1)
    assert found.shape == expected.shape == (63, 61)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_inner_values_are_handed_over_and_only_what_they_need_is_run() -> None:
    model = named_model(Dense())
    values = {str(v.name): v for node in model.graph for v in node.outputs}
    wanted = {values["add_out"], values["rmsnormalization_out"]}
    seen: dict[str, np.ndarray] = {}
    feed = step_feed(model, TOKENS)
    asked: list[str] = []

    def noted(name: str) -> np.ndarray:
        asked.append(name)
        return feed(name)

    def take(value: ir.Value, array: np.ndarray) -> None:
        seen[str(value.name)] = array

    run_model(model, noted, {values["rmsnormalization_out"]}, take, 1)
    assert (set(seen), set(asked)) == ({"rmsnormalization_out"}, {"input_ids"})
    run_model(model, noted, wanted, take, 1)
    assert set(seen) == {"add_out", "rmsnormalization_out"}
    assert seen["add_out"].shape == (3, 21, 32)


def test_a_cut_model_is_given_the_values_and_still_gives_its_own() -> None:
    model = named_model(Dense(windows=(0,)))
    cut = cut_at(model, ["add_out", "logits", "no such value"])
    assert [v.name for v in cut.graph.inputs][2:] == [given_name("add_out")]
    assert len(list(model.graph.inputs)) == 2, "the model itself stays as it is"
    values = {str(v.name): v for node in cut.graph for v in node.outputs}
    feed = step_feed(model, TOKENS)
    zeros = np.zeros((3, 21, 32), np.float32)
    seen: dict[str, np.ndarray] = {}

    def take(value: ir.Value, array: np.ndarray) -> None:
        seen[str(value.name)] = array

    run_model(
        cut,
        lambda name: zeros if name == given_name("add_out") else feed(name),
        {values["add_out"], values["logits"]},
        take,
        1,
    )
    assert np.abs(seen["add_out"]).max() > 0
    assert np.abs(seen["logits"]).max() < 1e-6, "of the zeros that it was given"


@pytest.mark.parametrize("names", [["b"], ["c"], ["a", "c"], ["a", "b", "c"], ["d"]])
def test_any_of_several_outputs_is_cut(names: list[str]) -> None:
    """Whatever stands before it: outputs that are not asked for, and those that nothing reads."""
    model = exported(
        "(float[B,6] x) => (float[B,2] y)",
        "a, b, c = Split <axis = 1, num_outputs = 3> (x) e = Add (b, c) f = Add (e, a) y = Neg (f)",
    )
    cut = cut_at(model, names)
    given = [name for name in names if name != "d"]
    assert [v.name for v in cut.graph.inputs] == ["x", *map(given_name, given)]
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    parts = dict(zip("abc", np.split(x, 3, axis=1), strict=True))
    feeds = {given_name(name): np.full((2, 2), 100, np.float32) for name in given}
    seen: list[np.ndarray] = []
    run_model(
        cut, ({"x": x} | feeds).__getitem__, {cut.graph.outputs[0]}, lambda _, y: seen.append(y), 1
    )
    np.testing.assert_array_equal(
        seen[0], -sum(feeds.get(given_name(name), part) for name, part in parts.items())
    )


def test_an_unknown_input_is_named() -> None:
    feed = step_feed(named_model(Dense()), TOKENS)
    with pytest.raises(UnsupportedError, match="what to give to the input mask is not known"):
        feed("mask")
