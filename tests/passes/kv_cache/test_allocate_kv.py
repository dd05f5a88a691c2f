"""`allocate-kv` in a pipeline: what it hands on, keeps to, and refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from optc.errors import InputError, UnsupportedError
from optc.ir.forms.ragged import RaggedStep
from optc.ir.pipeline.pipeline import Pipeline
from optc.passes.kv_cache import allocate_kv as module
from optc.passes.kv_cache.allocate_kv import AllocateKV, twice
from optc.passes.kv_cache.kv_cache import KVCache
from tests.support import dense_models
from tests.support.letters import letters_folder
from tests.support.models import Dense, dense_model

LOSSES = {0: 0.1, 1: 0.4, 2: 0.2, 3: 0.3}
INT4 = KVCache(dtype="int4", query_bits=8)
SHAPE = Dense(hidden=64, heads=2, kv_heads=1, head_dim=32, inner=64, windows=(0, 0, 0, 0))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Losses that are made up; the layers that were asked for."""
    asked: list[list[int]] = []

    def losses(model: ir.Model, tokens: object, layers: list[int]) -> list[float]:
        asked.append(list(layers))
        return [LOSSES[layer] for layer in layers]

    monkeypatch.setattr(module, "int4_losses", losses)
    monkeypatch.setattr(AllocateKV, "tokens", lambda *_: np.zeros((4, 8), np.int32))
    return asked


def allocate(**options: object) -> AllocateKV:
    return AllocateKV(folder="model", **options)  # type: ignore[arg-type]


def pools(model: ir.Model) -> list[str]:
    return [layer.dtype for layer in RaggedStep.of(model).kv.layers]


@pytest.mark.parametrize(
    ("share", "types"),
    [
        (0.24, ["int4"] * 4),
        (0.25, ["int4", "int8", "int4", "int4"]),
        (0.5, ["int4", "int8", "int4", "int8"]),
        (1.0, ["int8"] * 4),
    ],
)
def test_the_layers_that_lose_most_keep_int8(
    measured: list[list[int]], share: float, types: list[str]
) -> None:
    model = dense_model(SHAPE)
    first, _ = Pipeline((allocate(int8_share=share), INT4)).run(model)
    assert pools(model) == types
    eight = types.count("int8")
    wanted = {"int8": eight, "int4": 4 - eight}
    assert {k: v for k, v in first.report.details.items() if v} == {
        k: v for k, v in wanted.items() if v
    }
    assert measured == ([[0, 1, 2, 3]] if eight else [])
    if eight:
        rows = first.report.facts["layers"]
        assert [row["dtype"] for row in rows] == types
        assert [row["kl"] for row in rows] == list(LOSSES.values())
        assert all(row["measured"] for row in rows)


def test_only_layers_that_would_keep_int4_are_measured(measured: list[list[int]]) -> None:
    model = dense_model(Dense(hidden=64, heads=2, head_dim=32, inner=64, windows=(0, 12, 0, 5)))
    cache = KVCache(dtype="int4", int8_window=12)
    Pipeline((allocate(int8_share=0.5), cache)).run(model)
    assert measured == [[0, 2]]
    assert pools(model) == ["int4", "int8", "int8", "int8"]


@pytest.mark.parametrize("cache", [KVCache(dtype="int8"), KVCache(dtype="int4", int8_layers=(2,))])
def test_where_nothing_is_to_choose_nothing_is_measured(
    measured: list[list[int]], cache: KVCache
) -> None:
    model = dense_model(SHAPE)
    passes = (allocate(int8_share=0.5), cache)
    (record, _) = Pipeline(passes).run(model)
    assert measured == []
    assert record.report.settled == {}


def test_unread_it_chooses_as_many() -> None:
    model = dense_model(SHAPE)
    first, _ = Pipeline((allocate(int8_share=0.5), INT4)).run(model, dry=True)
    assert pools(model).count("int8") == 2
    assert first.report.settled == {"kv-cache.int8_layers": (0, 1)}


def test_in_large_models_layers_stand_for_their_neighbours(
    measured: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_MACS", 1.0)
    model = dense_model(SHAPE)
    first, _ = Pipeline((allocate(int8_share=0.25), INT4)).run(model)
    assert len(measured[0]) < 4
    assert [row["measured"] for row in first.report.facts["layers"]].count(True) < 4


def test_memory_is_that_of_variants_side_by_side() -> None:
    one, two = (dense_model(Dense(windows=(0,) * layers)) for layers in (1, 2))
    assert 0 < allocate().costs(one).working < allocate().costs(two).working


def test_windows_are_read_twice() -> None:
    windows = np.arange(14, dtype=np.int32).reshape(2, 7)
    assert twice(windows).tolist() == [[0, 1, 2, 0, 1, 2], [7, 8, 9, 7, 8, 9]]


def test_it_is_measured_on_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_models, "HEAD", 32)
    folder = letters_folder(tmp_path, 2000)
    text = {"text": str(folder / "text.txt"), "folder": str(folder), "cache": str(tmp_path / "c")}
    one = AllocateKV(**text, windows=2, window_tokens=24, int8_share=0.4)  # type: ignore[arg-type]
    first, _ = Pipeline((one, INT4)).run(dense_models.dense_model(3))
    rows = first.report.facts["layers"]
    assert all(row["kl"] > 0 for row in rows)
    (kept,) = (row["layer"] for row in rows if row["dtype"] == "int8")
    assert rows[kept]["kl"] == max(row["kl"] for row in rows)
    monkeypatch.setattr(module, "int4_losses", None)
    model = dense_models.dense_model(3)
    again, _ = Pipeline((one, INT4)).run(model)
    assert again.report.facts.pop("from_cache")
    assert again.report.settled == {"kv-cache.int8_layers": [kept]}
    assert pools(model)[kept] == "int8"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"int8_share": -0.1}, "int8_share=-0.1 is not from 0 to 1"),
        ({"int8_share": 1.1}, "int8_share=1.1 is not from 0 to 1"),
        ({"measured_windows": 0}, "measured_windows must be at least one"),
    ],
)
def test_wrong_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        allocate(**options)


def test_without_pools_there_is_nothing_to_choose_for() -> None:
    with pytest.raises(InputError, match="no pass behind it makes KV pools") as caught:
        allocate().run(dense_model(SHAPE))
    assert caught.value.where == "pass allocate-kv"


@pytest.mark.parametrize("head_dim", [16, 24, 48])
def test_widths_that_int4_does_not_take_are_refused_before_anything_is_measured(
    measured: list[list[int]], head_dim: int
) -> None:
    shape = Dense(hidden=64, heads=2, head_dim=head_dim, inner=64, windows=(0, 0))
    for dry in (False, True):
        with pytest.raises(UnsupportedError, match="multiples of 32"):
            Pipeline((allocate(int8_share=0.5), INT4)).run(dense_model(shape), dry=dry)
    assert measured == []


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_draft_of_the_first_layers_has_the_types_of_the_whole(
    measured: list[list[int]], count: int
) -> None:
    whole, part = (
        dense_model(Dense(hidden=64, heads=2, head_dim=32, inner=64, windows=(0,) * n))
        for n in (4, count)
    )
    pipeline = Pipeline((allocate(int8_share=0.5), INT4))
    settled = pipeline.settled(pipeline.run(whole))
    Pipeline(tuple(one.for_part(part) for one in settled.passes)).run(part)
    assert pools(part) == pools(whole)[:count]
    assert len(measured) == 1


def test_a_layer_before_the_first_is_refused() -> None:
    with pytest.raises(InputError, match="negative number"):
        KVCache(int8_layers=(-1,))
