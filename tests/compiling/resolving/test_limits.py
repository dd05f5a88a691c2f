"""Weights are counted, and a compile that cannot fit is refused up front."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from optc.artifact.writer import ArtifactWriter
from optc.compiling.resolving import limits
from optc.compiling.resolving.limits import (
    check_disk,
    check_memory,
    check_start,
    predicted_bytes,
    weight_bytes,
    weight_count,
)
from optc.errors import InputError
from tests.support.models import Dense, dense_model


def test_weights_are_counted() -> None:
    shape = Dense(vocab=61, hidden=32, tied=True)
    model, wider = dense_model(shape), dense_model(dataclasses.replace(shape, vocab=62))
    assert weight_count(wider) - weight_count(model) == 2 * 32  # embedding and head
    assert weight_bytes(wider) - weight_bytes(model) == 2 * 4 * 32


def test_a_compile_that_cannot_fit_is_refused_with_the_figure() -> None:
    model = dense_model(Dense())
    needed = predicted_bytes(model, 10**9, gated=True)
    assert needed > 10**9
    check_memory(model, 10**9, 0, gated=True)  # no limit
    assert check_memory(model, 10**9, needed, gated=True) == needed
    with pytest.raises(InputError) as caught:
        check_memory(model, 10**9, needed - 1, gated=True)
    assert f"predicted to need {needed:,} bytes" in caught.value.message
    assert caught.value.hint == "allow more"  # the compiler is what needs most


def test_what_every_compile_needs_is_refused_before_it_begins(tmp_path: Path) -> None:
    check_start(tmp_path, 0)
    check_start(tmp_path, limits.IMPORTED_BYTES + limits.COMPILER_BYTES)
    with pytest.raises(InputError, match=r"needs 485\.0 MiB of memory or more, but 300\.0 MiB are"):
        check_start("acme/tiny", 300 << 20)


def test_the_vocabulary_of_a_file_that_was_not_read_before_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.gguf").write_text("GGUF")
    monkeypatch.setattr(limits, "making_bytes", lambda path: 1300 << 20)
    check_start(tmp_path / "m.gguf", 1300 << 20)
    with pytest.raises(InputError, match=r"needs 1\.3 GiB of memory"):
        check_start(tmp_path / "m.gguf", 1200 << 20)


def test_the_prediction_follows_the_largest_layer_not_the_depth() -> None:
    small = predicted_bytes(dense_model(Dense(windows=(0,))), 0, gated=True, limit=1)
    deep = predicted_bytes(dense_model(Dense(windows=(0,) * 4)), 0, gated=True, limit=1)
    assert deep == small


def test_gates_are_foreseen_by_layer_hidden_states_and_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Float32 weights of one layer twice and a half, hidden states twice, tiles of the head."""
    monkeypatch.setattr(limits, "COMPILER_BYTES", 0)
    monkeypatch.setattr(limits, "RUNTIME_BYTES", 0)
    monkeypatch.setattr(limits, "usable_threads", lambda: 0)
    shape = Dense(windows=(0,), vocab=1 << 14, tied=True)
    gates = predicted_bytes(dense_model(shape), 0, gated=True, limit=1)
    hidden = 2 * 4 * 512 * 60 * 32  # rows of all windows, before and after the layer
    head = 4 * 4 * 8192 * (32 + 512)  # a tile of the vocabulary
    layer = 2.5 * 4 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48)
    assert gates == pytest.approx(hidden + head + layer, rel=0.01)
    whole = 4 * weight_count(dense_model(shape))
    kept = predicted_bytes(dense_model(shape), 0, gated=True)
    assert kept - gates == whole, "where memory allows it, the whole model stays open"


def test_the_disk_must_hold_every_copy_of_the_weights() -> None:
    model = dense_model(Dense())
    size = weight_bytes(model)

    def check(free: int, copies: int) -> None:
        writer = SimpleNamespace(free_bytes=lambda: free, output=Path("out"))
        check_disk(model, cast(ArtifactWriter, writer), copies)

    check(size, 1)
    check(3 * size, 3)
    with pytest.raises(InputError, match=r"^out: cannot be written: the disk is full") as caught:
        check(3 * size - 1, 3)
    assert f"({3 * size:,} bytes are needed, {3 * size - 1:,} are free)" in caught.value.message
