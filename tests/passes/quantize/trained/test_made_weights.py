"""Weights as no training gives them: passes end with numbers where the float model has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optc.errors import UnsupportedError
from tests.support import outliers
from tests.support.dense_models import DenseBuilder, dense_model
from tests.support.letters import letters_folder
from tests.support.ragged import run_dense

Rows = np.ndarray
#: What becomes of the rows [N, K] of a weight, by its name.
Change = Callable[[str, Rows], Rows]

PIPELINES: dict[str, list[Any]] = {
    "int8": ["rotate-kv", "rotate-activations", "fuse-qkv", {"quantize-weights": {"bits": 8}}],
    "smooth": ["calibrate", {"smooth": {"method": "smoothquant"}}, outliers.INT8],
    "gptq": ["rotate-activations", "propagate-errors", outliers.INT4],
    "keys": ["balance-keys", outliers.INT4],
}


def named(part: str, change: Callable[[Rows], Rows]) -> Change:
    return lambda name, rows: change(rows) if part in name else rows


def scaled(at: Any, factor: float) -> Callable[[Rows], Rows]:
    def change(rows: Rows) -> Rows:
        changed = rows.copy()
        changed[at] *= np.float32(factor)
        return changed

    return change


MADE: dict[str, Change] = {
    "zero embeddings": named("embedding", scaled(slice(None), 0)),
    "a zero layer": named("l0.", scaled(slice(None), 0)),
    "zero keys": named(".k", scaled(slice(None), 0)),
    "zero queries": named(".q", scaled(slice(None), 0)),
    "zero rows": lambda name, rows: scaled(slice(0, 16), 0)(rows),
    "zero columns": lambda name, rows: scaled((slice(None), slice(0, 16)), 0)(rows),
    "denormals": named("l0.", scaled(slice(None), 1e-41)),
    "denormal rows": lambda name, rows: scaled(slice(0, 3), 1e-41)(rows),
    "outliers of 1000x": lambda name, rows: scaled((slice(None), 3), 1000)(rows),
    "one row of 1000x": named("l1.", scaled(5, 1000)),
    "one sign": lambda name, rows: np.abs(rows),
    "all equal": named(".up", lambda rows: np.full_like(rows, 0.1)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return letters_folder(tmp_path_factory.mktemp("letters"))


#: Pipelines that take longer see what has no values, or next to none.
SLOW = {"gptq": ("zero embeddings",), "width": ("zero embeddings",)}
CASES = [(made, name) for name in PIPELINES for made in SLOW.get(name, MADE)]


@pytest.mark.parametrize(("made", "pipeline"), CASES)
def test_passes_end_with_numbers(
    made: str, pipeline: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy = DenseBuilder.lazy

    def changed(self: DenseBuilder, name: str, rows: Rows, *, transposed: bool) -> Any:
        return lazy(self, name, MADE[made](name, rows), transposed=transposed)

    monkeypatch.setattr(DenseBuilder, "lazy", changed)
    want = run_dense(dense_model(2), outliers.TOKENS)
    assert np.isfinite(want).all()
    if (made, pipeline) == ("zero embeddings", "smooth"):
        with pytest.raises(UnsupportedError, match="its input is zero on this text"):
            outliers.after(dense_model(2), folder, *PIPELINES[pipeline])
        return
    found = outliers.after(dense_model(2), folder, *PIPELINES[pipeline])
    assert np.isfinite(found).all()
    if not want.any():
        assert not found.any(), "of nothing comes nothing"
