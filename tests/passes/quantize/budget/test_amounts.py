"""Budgets: how they are written, and what room they leave."""

from __future__ import annotations

from fractions import Fraction

import pytest

from optc.errors import InputError
from optc.passes.quantize.budget.amounts import Budget, Footprint

#: 1,000 weights, of which an embedding of 100 has 850 bits.
MODEL = Footprint(1000, fixed_bits=850, float_bits=320, kv_bytes=10)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("3.5bpw", 3500 - 850),
        ("3.5 bpw", 3500 - 850),
        ("1KB", 8000 - 850 - 320),
        ("1KiB", 8192 - 850 - 320),
        # 500 bytes a token: 10 of them keys and values; the embedding is not read
        ("2tok/s@0.000001GB/s", 8 * (500 - 10) - 320),
        (" 2 tok/s @ 0.000001 GB/s ", 8 * (500 - 10) - 320),
    ],
)
def test_room_for_the_weights_that_are_chosen_for(text: str, most: int) -> None:
    assert Budget.read(text, "here").most_bits(MODEL) == most


@pytest.mark.parametrize(
    ("text", "reached"),
    [("1bpw", "2.850bpw"), ("1MB", "0.000MB"), ("9tok/s@1GB/s", "3333333.3tok/s")],
)
def test_what_is_reached_is_said_in_its_unit(text: str, reached: str) -> None:
    assert Budget.read(text, "here").reached(2000, MODEL) == reached


def test_weights_that_are_read_count_against_speed() -> None:
    budget = Budget("speed", Fraction(2), Fraction(1000))
    assert budget.most_bits(Footprint(1, fixed_bits=800, fixed_read=True)) == 3200


@pytest.mark.parametrize(
    "text", ["", "3.5", "bpw", "0bpw", "-1bpw", "3.5bits", "0tok/s@9GB/s", "٣bpw"]
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Budget.read(text, "here")
    assert str(caught.value) == (
        f"here: {text!r} is no budget (write 3.5bpw, a size such as 6.5MB, or 40tok/s@50GB/s)"
    )


def test_a_speed_needs_the_machine() -> None:
    with pytest.raises(InputError) as caught:
        Budget.read("40tok/s", "here")
    assert str(caught.value) == (
        "here: '40tok/s' does not say how fast the machine reads "
        "(write 40tok/s@50GB/s, or give it by --budget, which measures)"
    )
