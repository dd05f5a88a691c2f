"""Every engine is compared on the same windows with the reference, however large the vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.peers.subjects import Subject, folder_subject
from benchmarks.peers.tools import FailedError
from benchmarks.quality_per_byte.engines import evaluate
from benchmarks.quality_per_byte.engines.evaluate import Evaluator, windows_of
from optc.proof.reference.text import default_documents
from tests.benchmarks.quality_per_byte.engines.support import PYCODE

Array = npt.NDArray[Any]
VOCABULARY, WINDOWS, ROWS = 50, 2, 6


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Array:
    """Logits [W, S, V] that are written in the place of a model's."""
    logits = np.random.default_rng(0).normal(size=(WINDOWS, ROWS, VOCABULARY)).astype(np.float32)
    monkeypatch.setattr(
        evaluate, "write_reference", lambda folder, windows, path: np.save(path, logits)
    )
    return logits


@pytest.fixture
def evaluator(reference: Array, tmp_path: Path) -> Evaluator:
    windows = np.arange(WINDOWS * (ROWS + 1), dtype=np.int32).reshape(WINDOWS, -1)
    return Evaluator(Subject("tiny", tmp_path), windows, tmp_path)


class Worker:
    """An engine that adds noise to the reference, and notes what it was asked."""

    def __init__(self, logits: Array) -> None:
        self.logits, self.asked = logits, []

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self.asked.append((operation, arguments["tokens"]))
        np.save(arguments["file"], self.logits[len(self.asked) - 1])
        return {"rows": ROWS}


def log_softmax(logits: Array) -> Array:
    """Along the last axis."""
    found: Array = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return found


@pytest.fixture(params=[7, 1000])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the vocabulary that do not divide it, or one."""
    monkeypatch.setattr(evaluate, "_TILE", request.param)


@pytest.mark.usefixtures("tile")
def test_kl_is_that_of_all_positions_whatever_the_tiles(
    evaluator: Evaluator, reference: Array, tmp_path: Path
) -> None:
    found = reference + np.random.default_rng(1).normal(size=reference.shape).astype(np.float32)
    worker: Any = Worker(found)
    figures = evaluator.of_worker(worker, tmp_path)
    z, y = (log_softmax(part.astype(np.float64)) for part in (reference, found))
    kl = (np.exp(z) * (z - y)).sum(axis=-1)
    assert figures["kl_mean"] == pytest.approx(kl.mean())
    assert figures["tokens"] == WINDOWS * ROWS
    assert figures["top1_agreement"] == (z.argmax(-1) == y.argmax(-1)).mean()
    assert worker.asked == [("logits", list(range(ROWS))), ("logits", list(range(7, 7 + ROWS)))]


def test_padding_of_a_vocabulary_is_left_out(evaluator: Evaluator, reference: Array) -> None:
    padded = np.pad(reference, ((0, 0), (0, 0), (0, 14)), constant_values=99.0)
    assert evaluator.of_logits(iter(padded))["kl_mean"] == pytest.approx(0, abs=1e-12)


def test_logits_of_another_vocabulary_are_refused(evaluator: Evaluator, reference: Array) -> None:
    with pytest.raises(FailedError, match="logits of 49 entries, not of 50"):
        evaluator.of_logits(iter(reference[..., :-1]))


def test_windows_are_of_the_shipped_text_unless_another_is_named(tmp_path: Path) -> None:
    subject = folder_subject(PYCODE)
    shipped = windows_of(subject, None, 3)
    assert shipped.shape == (3, 513)
    other = tmp_path / "other.txt"
    other.write_text("\n\n".join(default_documents())[5000:60000])
    assert not np.array_equal(shipped, windows_of(subject, other, 3))


def test_the_reference_is_the_model_in_float32(tmp_path: Path) -> None:
    from benchmarks.proof.numpy_llama import FakeQuant, NumpyLlama

    ids = np.arange(5, 15, dtype=np.int32)[None]
    evaluate.write_reference(PYCODE, ids, tmp_path / "reference.npy")
    found = np.load(tmp_path / "reference.npy", mmap_mode="r")
    np.testing.assert_allclose(found[0], NumpyLlama(PYCODE, FakeQuant()).logits(ids[0]), atol=1e-3)
