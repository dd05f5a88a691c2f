"""How a weight is quantized, in words and numbers."""

from __future__ import annotations

import pytest

from optc.passes.numerics.scheme import Scheme


@pytest.mark.parametrize(
    ("scheme", "label", "spreads", "limits"),
    [
        (Scheme(8, 0, True), "int8 per channel", False, (-127, 127)),
        (Scheme(8, 64, True), "int8 groups of 64", True, (-127, 127)),
        (Scheme(8, 64, False), "int8 groups of 64 asymmetric", True, (0, 255)),
        (Scheme(4, 32, True), "int4 groups of 32", True, (-8, 7)),
        (Scheme(4, 0, True), "int4 per channel", True, (-8, 7)),
        (Scheme(4, 32, False, True), "int4 groups of 32 asymmetric, integer", True, (0, 15)),
        (Scheme(8, 0, True, zeros=True), "int8 per channel, zeros kept", False, (-127, 127)),
        (Scheme(6, 32, False, True), "int6 groups of 32 asymmetric, integer", True, (0, 63)),
    ],
)
def test_what_a_scheme_says(
    scheme: Scheme, label: str, spreads: bool, limits: tuple[int, int]
) -> None:
    assert (scheme.label, scheme.spreads, scheme.limits) == (label, spreads, limits)
