"""Bytes of a quantized model are all that a tool stores for it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.quality_per_byte.points import Point, Stored, count, merged
from benchmarks.quality_per_byte.weights_alone.ours import packed_bits
from optc.ir.quantized_rows import QuantizedTile

EMBEDDING, LAYER, NORM = "model.embed_tokens.weight", "model.layers.0.o.weight", "model.norm.weight"
SHAPES: dict[str, tuple[int, ...]] = {EMBEDDING: (10, 64), LAYER: (64, 64), NORM: (64,)}


def stored() -> dict[str, Stored]:
    """A head of 8 bits and a scale a row, a layer of 4 bits and 16 more a group, float32 norms."""
    return {
        EMBEDDING: Stored(640, 640 + 10 * 4, "int8"),
        LAYER: Stored(4096, 4096 // 2 + 128 * 2, "int4"),
        NORM: Stored(64, 256, "float32"),
    }


def test_bits_of_the_body_are_those_of_the_layers_matrices() -> None:
    size = count(stored(), SHAPES)
    assert size.bits_body == 4.5
    assert size.formats == {"int4": 4096}


def test_all_bytes_count_and_parameters_are_the_models() -> None:
    size = count(stored(), SHAPES)
    assert size.bytes == 680 + 2304 + 256
    assert size.bits_all == pytest.approx(8 * 3240 / 4800)


def test_a_second_table_for_the_head_makes_bits_more() -> None:
    """Its values are no parameters of a model whose head is tied."""
    untied = {**stored(), "lm_head.weight": Stored(640, 1280, "float16")}
    assert count(untied, SHAPES).bits_all == pytest.approx(8 * (3240 + 1280) / 4800)
    assert count(untied, SHAPES).bits_body == 4.5


def test_norms_may_have_other_names() -> None:
    anonymous = {**stored(), "other": stored()[NORM]}
    del anonymous[NORM]
    assert count(anonymous, SHAPES) == count(stored(), SHAPES)


def test_a_matrix_that_is_not_stored_is_refused() -> None:
    missing = stored()
    del missing[LAYER]
    with pytest.raises(ValueError, match=f"{LAYER} is not stored"):
        count(missing, SHAPES)


def test_a_matrix_of_another_size_is_refused() -> None:
    short = {**stored(), LAYER: Stored(4000, 2000, "int4")}
    with pytest.raises(ValueError, match=r"is \(64, 64\), 4000 values are stored"):
        count(short, SHAPES)


@pytest.mark.parametrize(
    ("scales", "zero_points", "group_scales", "expected"),
    [
        ((2,), None, None, 2 * 64 * 4 + 2 * 32),  # a float32 scale a channel
        ((2, 2), None, None, 2 * 64 * 4 + 4 * 16),  # a float16 scale a group
        ((2, 2), (2, 2), None, 2 * 64 * 4 + 4 * 16 + 4 * 4),  # and zero points of 4 bits
        ((2,), (2, 2), (2, 2), 2 * 64 * 4 + 2 * 32 + 4 * 8 + 4 * 8),  # integer scales: bytes
    ],
)
def test_packed_bits_of_a_tile(
    scales: tuple[int, ...],
    zero_points: tuple[int, ...] | None,
    group_scales: tuple[int, ...] | None,
    expected: int,
) -> None:
    tile = QuantizedTile(
        np.zeros((2, 64), np.uint8),
        np.ones(scales, np.float32),
        None if zero_points is None else np.zeros(zero_points, np.uint8),
        None if group_scales is None else np.ones(group_scales, np.uint8),
    )
    assert packed_bits(tile, 4) == expected


def point(who: str, label: str, kl: float, size: int) -> Point:
    """A point of weights alone."""
    return Point(who, label, "weights", size, 4.0, 4.0, {"kl_mean": kl})


def test_what_is_measured_again_replaces_and_the_rest_stays() -> None:
    old = [point("optc", "a", 0.1, 10), point("peer", "b", 0.2, 20), point("optc", "c", 0.3, 5)]
    found = merged(old, [point("optc", "a", 0.05, 11)])
    assert [(p.who, p.label, p.kl) for p in found] == [
        ("optc", "c", 0.3),
        ("optc", "a", 0.05),
        ("peer", "b", 0.2),
    ]


def test_a_point_survives_its_file() -> None:
    one = point("optc", "a", 0.0123456789, 10)
    again = Point(**one.as_json())
    assert again.key == one.key
    assert again.kl == 0.012346
