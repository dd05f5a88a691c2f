"""Texts become inputs, their rows come back in order, and logits become probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optc.errors import ArtifactError, RequestError
from optc.runtime.tensors.texts import (
    TextEngine,
    TextScores,
    read_scores,
    read_tokenizer,
    text_inputs,
)
from tests.serve.tensors.toys import TEXTS, Powers, letters

ROWS = np.array([[0.0, 1.0, 2.0], [-50.0, 0.0, 700.0]], np.float32)


def test_classes_of_which_one_holds() -> None:
    found = TextScores(("a", "b", "c")).probabilities(ROWS)
    exact = np.exp(ROWS.astype(np.float64) - ROWS.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found, exact / exact.sum(axis=1, keepdims=True), rtol=1e-12)


def test_each_apart() -> None:
    found = TextScores(scores="sigmoid").probabilities(ROWS)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-ROWS.astype(np.float64))), rtol=1e-12)


def test_as_they_are() -> None:
    found = TextScores(scores="plain").probabilities(ROWS)
    np.testing.assert_array_equal(found, ROWS.astype(np.float64))


@pytest.mark.parametrize(("index", "name"), [(0, "a"), (1, "b"), (2, "2")])
def test_a_class_without_a_name_has_its_number(index: int, name: str) -> None:
    assert TextScores(("a", "b")).label(index) == name


def engine() -> tuple[TextEngine, Powers]:
    runs = Powers()
    return TextEngine(runs, TEXTS, {"name": "toy"}, letters()), runs


TEXTS_GIVEN = ["abcd", "a", "abc", "h", "ab"]


@pytest.mark.parametrize(("size", "batches"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5]), (9, [5])])
def test_rows_come_back_in_order_however_many_run_together(size: int, batches: list[int]) -> None:
    found, runs = engine()
    rows = found.rows(TEXTS_GIVEN, "embeddings", size)
    assert runs.batches == batches
    for (row, encoded), text in zip(rows, TEXTS_GIVEN, strict=True):
        ids = ["?abcdefgh".index(one) for one in text]
        assert [
            i for i, seen in zip(encoded.ids, encoded.attention_mask, strict=True) if seen
        ] == ids
        means = [np.mean(np.array(ids, float) ** n) / 10 for n in range(len(row))]
        np.testing.assert_allclose(row, means, rtol=1e-6)


def test_a_prompt_stands_before_each_text() -> None:
    plain, _ = engine()
    prompted = TextEngine(Powers(), TEXTS, {"name": "toy"}, letters(), "ab")
    wanted = plain.rows(["abc", "abh"], "embeddings", 2)
    for (row, _), (other, _) in zip(
        prompted.rows(["c", "h"], "embeddings", 2), wanted, strict=True
    ):
        np.testing.assert_array_equal(row, other)
    assert prompted.count_tokens(["c"]) == plain.count_tokens(["abc"])


def test_texts_of_about_one_length_run_together() -> None:
    """So that little is padded; the shortest first, of pairs by both parts."""
    found, runs = engine()
    widths: list[int] = []
    run = runs.run

    def noted(inputs: Any) -> Any:
        widths.append(inputs["input_ids"].shape[1])
        return run(inputs)

    runs.run = noted  # type: ignore[method-assign]
    found.rows(TEXTS_GIVEN, "embeddings", 2)
    found.rows([("ab", "cd"), "a", ("a", "b"), "abc"], "embeddings", 2)
    assert widths == [1, 3, 4, 2, 4]


@pytest.mark.parametrize("wrong", ["ab", ["a", 3], [("a",)], [("a", "b", "c")], [("a", 3)], [None]])
def test_what_is_no_list_of_texts(wrong: Any) -> None:
    with pytest.raises(RequestError, match="texts: texts are no list of texts"):
        engine()[0].rows(wrong, "embeddings", 2)


def test_pairs_may_be_lists() -> None:
    found, _ = engine()
    (one, _), (other, _) = found.rows([["a", "b"], ("a", "b")], "embeddings", 1)  # type: ignore[list-item]
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize("size", [0, -1])
def test_batches_hold_something(size: int) -> None:
    with pytest.raises(RequestError, match=f"batch_size: {size} texts at once"):
        engine()[0].rows(["a"], "embeddings", size)


def test_tokens_are_counted_without_padding_and_as_far_as_they_are_read() -> None:
    found, _ = engine()
    assert found.count_tokens(["a", "abc"]) == 4
    assert found.count_tokens(["abcdefgh" * 2]) == 8


def test_inputs_are_those_that_the_model_has() -> None:
    inputs = text_inputs(letters(), ["ab", "c"], TEXTS)
    assert {name: one.tolist() for name, one in inputs.items()} == {
        "input_ids": [[1, 2], [3, 0]],
        "attention_mask": [[1, 1], [1, 0]],
    }
    assert {one.dtype for one in inputs.values()} == {np.dtype(np.int64)}


def test_files_that_say_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    for text in ("", "{", '{"unknown": 1}', '{"scores": "other"}'):
        file.write_text(text)
        with pytest.raises(ArtifactError, match="does not say what scores of texts are"):
            read_scores(file)
        with pytest.raises(ArtifactError, match="is no tokenizer") as caught:
            read_tokenizer(file)
        assert caught.value.where == str(file)
    with pytest.raises(ArtifactError, match="does not say what scores of texts are"):
        read_scores(tmp_path / "absent")
    file.write_text('{"labels": ["a"], "scores": "plain"}')
    assert read_scores(file) == TextScores(("a",), "plain")
