"""Readings of regions that are formulas of NumPy: whatever it was made of is read, or refused.

A region is linear in its operand. So there is a weight for each dimension, column and angle: those
of a selection and rotation, and, for what is none, one of them changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest

from optc.passes.canonicalize.heads import Heads
from optc.passes.canonicalize.probing.evaluate import Float32, Probes, Unreadable
from optc.passes.canonicalize.probing.read import Reading, Turn, applied, read_region


class Formula:
    """A region by its weights.

    Args:
        plain, cosines, sines: [H, D, W] of the operand alone, by cosines and by sines.
        angles: [2, H, D]: the frequency that each dimension's cosines and sines go by.
        frequencies: All of them; none if nothing turns.
    """

    def __init__(self, plain: Any, cosines: Any, sines: Any, angles: Any, frequencies: Any) -> None:
        self.plain, self.cosines, self.sines, self.angles = plain, cosines, sines, angles
        self.frequencies = [np.asarray(frequencies, np.float32)] * 2 if len(frequencies) else []
        self.trig = self.frequencies
        self.width = plain.shape[2]
        self.layout: Callable[[Float32], Float32] = lambda found: found
        self.honest_error = 0.0

    def once(self, x: Float32, cos: Any, sin: Any) -> Float32:
        """As `Probes.once`."""
        found = self.plain @ x
        if self.trig:
            c, s = cos(self.frequencies[0]), sin(self.frequencies[1])
            found = found + (self.cosines @ x) * c[self.angles[0]]
            found = found + (self.sines @ x) * s[self.angles[1]]
        return np.ravel(found).astype(np.float32)

    def honest(self, x: Float32, positions: Any) -> Float32:
        """As `Probes.honest`."""

        def at(row: Float32, position: int) -> Float32:
            found = self.once(row, lambda f: np.cos(position * f), lambda f: np.sin(position * f))
            return found.reshape(self.plain.shape[:2])

        found = np.array(
            [
                [at(row, int(place)) for row, place in zip(*one, strict=True)]
                for one in zip(x, positions, strict=True)
            ]
        )
        found[1, 2, -1, -1] += self.honest_error * np.abs(found).max()
        return self.layout(found)


def formula_of(reading: Reading, width: int) -> Formula:
    """The region that a reading describes."""
    heads, size = reading.columns.shape
    chosen = np.zeros((heads, size, width))
    chosen[np.arange(heads)[:, None], np.arange(size), reading.columns] = reading.factor
    plain, cosines, sines = chosen.copy(), np.zeros_like(chosen), np.zeros_like(chosen)
    angles = np.zeros((2, heads, size), int)
    turn = reading.turn
    if turn is None:
        return Formula(plain, cosines, sines, angles, ())
    known = sorted(set(turn.frequencies))
    for (first, second), frequency in zip(turn.pairs, turn.frequencies, strict=True):
        plain[:, [first, second]] = 0
        cosines[:, [first, second]] = turn.factor * chosen[:, [first, second]]
        sines[:, first] = -turn.factor * chosen[:, second]
        sines[:, second] = turn.factor * chosen[:, first]
        angles[:, :, [first, second]] = known.index(frequency)
    return Formula(plain, cosines, sines, angles, known)


def readings() -> Iterator[tuple[Reading, int]]:
    """Any columns, pairs, frequencies and factors."""
    rng = np.random.default_rng(0)
    for turning in (0, 2, 4, 6):
        for heads in (1, 3):
            for factor, of_turn in ((1.0, 1.0), (0.5, 2.0), (-3.0, 1.0)):
                size, width = 6, 40
                columns = rng.permutation(width)[: heads * size].reshape(heads, size)
                pairs = rng.permutation(size)[:turning].reshape(-1, 2)
                pairs = pairs[np.argsort(pairs[:, 0])]
                numbers = np.float32(rng.choice([1.0, 0.3, 0.03, 0.003], len(pairs)))
                whole = factor if turning < size else 1.0  # nothing is left that does not turn
                turn = Turn(
                    tuple((int(a), int(b)) for a, b in pairs),
                    tuple(float(one) for one in numbers),
                    of_turn * factor / whole,
                )
                yield Reading(columns, whole, turn if turning else None), width


def heads_of(reading: Reading, *, tokens_last: bool = False) -> Heads:
    return Heads(*reading.columns.shape, tokens_last=tokens_last)


def read(formula: Formula, heads: Heads) -> Reading:
    return read_region(cast("Probes", formula), heads)


def test_what_a_region_was_made_of_is_read() -> None:
    for made, width in readings():
        found = read(formula_of(made, width), heads_of(made))
        np.testing.assert_array_equal(found.columns, made.columns)
        assert found.factor == made.factor
        assert (found.turn is None) == (made.turn is None)
        if found.turn is not None and made.turn is not None:
            assert (found.turn.pairs, found.turn.frequencies, found.turn.factor) == (
                made.turn.pairs,
                made.turn.frequencies,
                made.turn.factor,
            )


def test_the_reading_computes_what_the_region_computes() -> None:
    rng = np.random.default_rng(1)
    positions = np.array([[0, 1, 900], [7, 7, 3]])
    for made, width in readings():
        x = rng.standard_normal((2, 3, width), np.float32)
        wanted = formula_of(made, width).honest(x, positions)
        np.testing.assert_allclose(applied(made, x, positions), wanted, atol=2e-4)


@pytest.mark.parametrize("tokens_last", [False, True])
@pytest.mark.parametrize("folded", [False, True])
def test_the_axes_of_its_result(tokens_last: bool, folded: bool) -> None:
    made, width = list(readings())[-1]
    formula = formula_of(made, width)
    turned = tokens_last and not folded
    formula.layout = lambda x: (
        x.reshape(2, 3, -1) if folded else x.transpose(0, 2, 1, 3) if turned else x
    )
    assert read(formula, heads_of(made, tokens_last=tokens_last)).turn == made.turn
    if not folded:
        formula.layout = lambda x: x if turned else x.transpose(0, 2, 1, 3)
        with pytest.raises(Unreadable, match="it is no selection and rotation"):
            read(formula, heads_of(made, tokens_last=tokens_last))


def test_any_other_weight_is_refused() -> None:
    """One column more, or one weight of another size, anywhere, in one head or in all."""
    rng = np.random.default_rng(2)
    for made, width in readings():
        for kind in ("plain", "cosines", "sines"):
            for case in range(4):
                formula = formula_of(made, width)
                weights = getattr(formula, kind)
                there = np.argwhere(weights)
                if not len(there) or (kind != "plain" and made.turn is None):
                    continue
                head, dim, column = there[rng.integers(len(there))]
                if case % 2:
                    weights[head, dim, (column + 1) % width] += 0.7
                else:
                    weights[head, dim, column] *= 1.01
                with pytest.raises(Unreadable):
                    read(formula, heads_of(made))


def test_rounding_makes_no_difference() -> None:
    rng = np.random.default_rng(3)
    for made, width in readings():
        formula = formula_of(made, width)
        for weights in (formula.plain, formula.cosines, formula.sines):
            weights *= 1 + 2e-7 * rng.uniform(-1, 1, weights.shape)
        found = read(formula, heads_of(made))
        np.testing.assert_array_equal(found.columns, made.columns)
        assert found.factor == pytest.approx(made.factor, rel=1e-6)
        pairs = [() if one.turn is None else one.turn.pairs for one in (found, made)]
        assert pairs[0] == pairs[1]


def test_an_error_at_one_place_alone_is_noticed() -> None:
    made, width = list(readings())[-1]
    for error, refused in ((1e-4, False), (1e-3, True), (np.nan, True)):
        formula = formula_of(made, width)
        formula.honest_error = error
        if refused:
            with pytest.raises(Unreadable, match="it is no selection and rotation"):
                read(formula, heads_of(made))
        else:
            read(formula, heads_of(made))


PAIRED = Reading(
    np.array([[3, 1, 0, 5, 2, 9], [13, 11, 10, 15, 12, 19]]),
    2.0,
    Turn(((0, 3), (4, 1)), (0.25, 0.5), 1.5),
)


def _no_turn_in_one_head(formula: Formula) -> None:
    formula.plain[1, [0, 3]] = formula.cosines[1, [0, 3]]
    formula.cosines[1, [0, 3]] = 0
    formula.sines[1, [0, 3]] = 0


def _zero(formula: Formula) -> None:
    formula.plain[1, 2] = 0


def _other_factor(formula: Formula) -> None:
    formula.plain[:, 2] *= 3


def _no_sine(formula: Formula) -> None:
    formula.sines[1, 3] = 0


def _other_turning_factor(formula: Formula) -> None:
    for weights in (formula.cosines, formula.sines):
        weights[:, [1, 4]] *= 2


def _other_factor_of_sines(formula: Formula) -> None:
    formula.sines[:, [1, 4]] *= 2


def _other_factor_of_cosines(formula: Formula) -> None:
    formula.cosines[:, [1, 4]] *= 1.5


def _second_of_the_other_sign(formula: Formula) -> None:
    formula.sines[1, 3] *= -1


def _first_of_the_other_sign(formula: Formula) -> None:
    formula.sines[1, 0] *= -1


def _mixed(formula: Formula) -> None:
    formula.plain[0, 2, 1] += 1


def _mixed_sines(formula: Formula) -> None:
    formula.sines[0, 3, 4] += 1


def _foreign(formula: Formula) -> None:
    formula.sines[:, 0] = np.roll(formula.sines[:, 0], 7, axis=1)


def _crossed_in_one_head(formula: Formula) -> None:
    formula.sines[1, [0, 4]] = formula.sines[1, [4, 0]]


def _mirrored(formula: Formula) -> None:
    formula.sines[1, [0, 3]] *= -1


def _other_angle_of_sines(formula: Formula) -> None:
    formula.angles[1, 0, 3] = 1


def _other_angle_of_one(formula: Formula) -> None:
    formula.angles[:, 1, 3] = 1


def _all_of_one_sign(formula: Formula) -> None:
    formula.sines[:] = np.abs(formula.sines)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_no_turn_in_one_head, "its heads are treated differently"),
        (_zero, "some of its dimensions are always zero"),
        (_other_factor, "its dimensions have different factors"),
        (_no_sine, "some of its dimensions do not turn"),
        (_other_turning_factor, "its turning dimensions have different factors"),
        (_other_factor_of_sines, "its turning dimensions have different factors"),
        (_other_factor_of_cosines, "its turning dimensions have different factors"),
        (_first_of_the_other_sign, "a pair of its dimensions is not turned but mirrored"),
        (_second_of_the_other_sign, "a pair of its dimensions is not turned but mirrored"),
        (_mixed, "some of its dimensions are mixed of several"),
        (_mixed_sines, "some of its dimensions are mixed of several"),
        (_foreign, "it turns a dimension with one that is not of its head"),
        (_crossed_in_one_head, "its turning dimensions are not in pairs"),
        (_mirrored, "a pair of its dimensions is not turned but mirrored"),
        (_other_angle_of_sines, "cosine and sine of a dimension are of different angles"),
        (_other_angle_of_one, "its turning dimensions are not in pairs"),
        (_all_of_one_sign, "its turning dimensions are not in pairs"),
    ],
)
def test_what_is_no_rotation_says_why(change: Callable[[Formula], None], reason: str) -> None:
    formula = formula_of(PAIRED, 20)
    change(formula)
    with pytest.raises(Unreadable, match=reason):
        read(formula, heads_of(PAIRED))


def test_as_many_values_as_heads_have() -> None:
    for count, size in ((2, 5), (3, 6), (1, 6)):
        with pytest.raises(Unreadable, match=r"it gives 12 values a token, not "):
            read(formula_of(PAIRED, 20), Heads(count, size, tokens_last=False))
