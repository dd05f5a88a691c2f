"""The rows of largest KL of all parts, with the text before them and both models' best tokens."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from optc.proof.gates.divergence import BestTokens, RowScores
from optc.proof.gates.worst_contexts import MOST, WorstContexts, decoder
from tests.runtime.support.texts import byte_level

IDS = np.arange(100, 141).astype(np.int32)


def scores(*kl: float) -> RowScores:
    rows = len(kl)
    flags, zeros = np.zeros(rows, bool), np.zeros(rows)
    tokens = np.stack([np.arange(rows), 50 + np.arange(rows)], axis=1)
    best = BestTokens(tokens, np.log(np.full((rows, 2), 0.5)), np.log(np.full((rows, 2), 0.25)))
    return RowScores(np.array(kl), flags, flags, zeros, zeros, best)


def test_the_worst_of_all_parts_come_first_and_are_few() -> None:
    kept = WorstContexts()
    rng = np.random.default_rng(0)
    kl = rng.permutation(120).reshape(3, 2, 20) / 10
    for window, parts in enumerate(kl):
        for index, part in enumerate(parts):
            kept.add(window, IDS, 20 * index, scores(*part))
    found = kept.to_json()
    assert [entry["kl"] for entry in found] == [pytest.approx((119 - i) / 10) for i in range(8)]
    flat = kl.reshape(3, 40)
    assert [flat[e["window"], e["position"]] for e in found] == [e["kl"] for e in found]


def test_of_equal_ones_the_first_stays() -> None:
    kept = WorstContexts()
    for window in range(2):
        kept.add(window, IDS, 0, scores(*[1.0] * MOST))
    places = [(entry["window"], entry["position"]) for entry in kept.to_json()]
    assert places == [(0, row) for row in range(MOST)]


def test_an_entry_has_the_text_before_the_token_and_both_best_tokens() -> None:
    kept = WorstContexts(lambda ids: "".join(chr(i) for i in ids))
    kept.add(2, IDS, 30, scores(0.0, 3.0))
    entry = kept.to_json()[0]
    assert (entry["window"], entry["position"], entry["kl"]) == (2, 31, 3.0)
    assert entry["context"] == "".join(chr(i) for i in range(100, 132))
    assert entry["next"] == {"token": 132, "text": chr(132)}
    probabilities = {
        "reference_probability": pytest.approx(0.5),
        "engine_probability": pytest.approx(0.25),
    }
    assert entry["reference"] == {"token": 1, "text": chr(1), **probabilities}
    assert entry["engine"] == {"token": 51, "text": chr(51), **probabilities}


def test_texts_are_bounded() -> None:
    kept = WorstContexts(lambda ids: "word and more " * len(ids))
    kept.add(0, IDS, 35, scores(1.0))
    assert len(kept.to_json()[0]["context"]) == 120


def test_without_a_tokenizer_there_are_ids_only() -> None:
    kept = WorstContexts(decoder(None))
    kept.add(0, IDS, 0, scores(1.0))
    (entry,) = kept.to_json()
    assert entry["context"] is None
    assert entry["next"] == {"token": 101, "text": None}


def test_what_is_not_a_number_is_the_worst_and_null() -> None:
    kept = WorstContexts()
    kept.add(0, IDS, 0, scores(*range(1, MOST + 1)))
    kept.add(1, IDS, 0, scores(float("nan")))
    first = kept.to_json()[0]
    assert (first["kl"], first["window"]) == (None, 1)
    assert len(kept.to_json()) == MOST


def test_ids_are_decoded_by_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = byte_level(bos=True)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    decode = decoder(tmp_path / "tokenizer.json")
    assert decode is not None
    assert decode(tokenizer.encode("a b", add_special_tokens=False).ids) == "a b"


@pytest.mark.parametrize(
    ("reference", "engine", "said"),
    [
        (np.nan, 0.5, "the reference's logits are no finite numbers at position 7 of window 2"),
        (0.5, np.nan, "the engine's logits are no finite numbers at position 7 of window 2"),
        (np.nan, np.nan, "the reference's logits are no finite numbers at position 7 of window 2"),
        (0.5, 0.0, "the divergence is infinite at position 7 of window 2"),
    ],
)
def test_the_first_place_without_a_number_says_whose_it_is(
    reference: float, engine: float, said: str
) -> None:
    kept = WorstContexts()
    assert kept.broken == ""
    kept.add(1, IDS, 0, scores(3.0))
    assert kept.broken == ""
    with np.errstate(divide="ignore"):
        log_p = np.log(np.full((1, 2), reference)), np.log(np.full((1, 2), engine))
    found = dataclasses.replace(scores(np.inf), best=BestTokens(np.zeros((1, 2), int), *log_p))
    kept.add(2, IDS, 7, found)
    assert kept.broken == said
    assert kept.to_json()[0]["kl"] is None
