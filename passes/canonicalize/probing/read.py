"""The effect of a region, read off a few probes: which columns reach which head, how they turn.

An operand that numbers its own columns shows where each of them ends; an operand of ones shows
signs and factors; cosines and sines that number their frequencies show what turns by which angle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.passes.canonicalize.heads import Heads
from optc.passes.canonicalize.probing.evaluate import Float32, Probes, Unreadable

Ints = npt.NDArray[np.int64]
#: Relative error of the check on random numbers.
_TOLERANCE = 2e-4


@dataclass(frozen=True)
class Turn:
    """Dimensions of a head that turn in pairs.

    Attributes:
        pairs: (first, second): (a, b) becomes (a cos - b sin, b cos + a sin).
        frequencies: Of each pair.
        factor: That cos and sin are multiplied by.
    """

    pairs: tuple[tuple[int, int], ...]
    frequencies: tuple[float, ...]
    factor: float

    @property
    def other_way(self) -> Turn:
        """The same turn, by negative angles: the second dimension of a pair comes first."""
        pairs = tuple((second, first) for first, second in self.pairs)
        return Turn(pairs, tuple(-one for one in self.frequencies), self.factor)


@dataclass(frozen=True)
class Reading:
    """The effect of a region.

    Attributes:
        columns: [H, D]: the column of the operand that dimension d of head h is.
        factor: That all of them are multiplied by.
        turn: How they turn after that; None if they do not.
    """

    columns: Ints
    factor: float
    turn: Turn | None


@dataclass(frozen=True)
class _Answers:
    """One head's or all heads' answers [H, D] to the probes."""

    columns: Ints
    factor: Float32
    partners: Ints
    sines: Float32
    passed: npt.NDArray[np.bool_]
    classes: Ints


def read_region(probes: Probes, heads: Heads) -> Reading:
    """Read what the region gives, and check it on random numbers.

    Args:
        probes: The region.
        heads: How its result holds heads.

    Raises:
        Unreadable: It does something else.
    """
    answers = _ask(probes, heads)
    turning = ~answers.passed[0]
    if not np.array_equal(answers.passed, np.broadcast_to(answers.passed[0], answers.passed.shape)):
        raise Unreadable("its heads are treated differently")
    still = answers.factor[:, ~turning]
    whole = float(np.median(still)) if still.size else 1.0
    if still.size and not np.allclose(still, whole, rtol=1e-6):
        raise Unreadable("its dimensions have different factors")
    turn = None
    if turning.any():
        turn = _turn(answers, turning, whole, _numbered(probes))
    reading = Reading(answers.columns, whole, turn)
    _check(probes, heads, reading)
    return reading


def _numbered(probes: Probes) -> Float32:
    """All frequencies, each once."""
    return np.unique(np.concatenate([np.ravel(values) for values in probes.frequencies]))


def _ask(probes: Probes, heads: Heads) -> _Answers:
    shape = (heads.count, heads.size)
    codes = np.arange(1, probes.width + 1, dtype=np.float32)
    ones = np.ones(probes.width, np.float32)

    def constant(number: float) -> Any:
        return lambda values: np.full_like(values, number)

    def ask(x: Float32, cos: Any, sin: Any) -> Float32:
        found = probes.once(x, cos, sin)
        if found.size != shape[0] * shape[1]:
            raise Unreadable(f"it gives {found.size} values a token, not {shape}")
        return found.reshape(shape)

    zero, one = constant(0.0), constant(1.0)
    factor = ask(ones, one, zero)
    if not factor.all():
        raise Unreadable("some of its dimensions are always zero")
    columns = _whole(ask(codes, one, zero) / factor) - 1
    if not probes.trig:
        passed = np.ones(shape, np.bool_)
        return _Answers(columns, factor, columns, factor, passed, np.zeros(shape, np.int64))
    passed = np.isclose(ask(ones, zero, zero), factor)
    sines = ask(ones, zero, one)
    if not sines.all():
        raise Unreadable("some of its dimensions do not turn")
    partners = _whole(ask(codes, zero, one) / sines) - 1
    known = _numbered(probes)

    def number(values: Float32) -> Float32:
        return (np.searchsorted(known, values) + 1).astype(np.float32)

    classes = _whole(ask(ones, number, zero) / factor) - 1
    by_sine = _whole(ask(ones, zero, number) / sines) - 1
    if not np.array_equal(classes[~passed], by_sine[~passed]):
        raise Unreadable("cosine and sine of a dimension are of different angles")
    return _Answers(columns, factor, partners, sines, passed, classes)


def _whole(values: Float32) -> Ints:
    """Numbers that must be whole.

    Raises:
        Unreadable: They are not.
    """
    found = np.rint(values)
    if not np.allclose(values, found, atol=0.05, rtol=1e-6):
        raise Unreadable("some of its dimensions are mixed of several")
    return found.astype(np.int64)


def _turn(answers: _Answers, turning: npt.NDArray[np.bool_], whole: float, known: Float32) -> Turn:
    factor = float(np.median(answers.factor[:, turning]))
    signs = answers.sines / factor
    even = np.allclose(answers.factor[:, turning], factor, rtol=1e-6)
    if not even or not np.allclose(np.abs(signs[:, turning]), 1.0, rtol=1e-6):
        raise Unreadable("its turning dimensions have different factors")
    minus = np.signbit(signs)
    pairs, frequencies = [], []
    for dim in np.flatnonzero(turning & minus[0]):
        (mates,) = np.nonzero(answers.columns[0] == answers.partners[0, dim])
        if len(mates) != 1:
            raise Unreadable("it turns a dimension with one that is not of its head")
        first, second = int(dim), int(mates[0])
        frequencies.append(float(known[_angle_of(answers, minus, first, second)]))
        pairs.append((first, second))
    if 2 * len(pairs) != int(turning.sum()):
        raise Unreadable("its turning dimensions are not in pairs")
    return Turn(tuple(pairs), tuple(frequencies), factor / whole)


def _angle_of(answers: _Answers, minus: npt.NDArray[np.bool_], first: int, second: int) -> int:
    """The angle that both dimensions turn with each other by, in every head.

    Raises:
        Unreadable: They do not.
    """
    crossed = np.array_equal(
        answers.partners[:, [first, second]], answers.columns[:, [second, first]]
    )
    angles = {int(one) for one in answers.classes[:, [first, second]].flat}
    if not crossed or len(angles) != 1:
        raise Unreadable("its turning dimensions are not in pairs")
    if not minus[:, first].all() or minus[:, second].any():
        raise Unreadable("a pair of its dimensions is not turned but mirrored")
    return angles.pop()


def applied(reading: Reading, x: Float32, positions: Ints) -> Float32:
    """The result of a region by its reading: [B, S, H, D] of x [B, S, W] at positions [B, S]."""
    found: Float32 = np.multiply(x[..., reading.columns], reading.factor, dtype=np.float32)
    if reading.turn is None:
        return found
    first, second = (np.array(side) for side in zip(*reading.turn.pairs, strict=True))
    frequencies = np.asarray(reading.turn.frequencies, np.float32)
    angles = positions[..., None].astype(np.float32) * frequencies
    cos = np.cos(angles)[:, :, None] * np.float32(reading.turn.factor)
    sin = np.sin(angles)[:, :, None] * np.float32(reading.turn.factor)
    a, b = found[..., first].copy(), found[..., second].copy()
    found[..., first], found[..., second] = a * cos - b * sin, b * cos + a * sin
    return found


def _check(probes: Probes, heads: Heads, reading: Reading) -> None:
    """Raise unless random numbers at random positions agree."""
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 3, probes.width), np.float32)
    positions = random.integers(0, 200, (2, 3))
    found = probes.honest(x, positions)
    if found.ndim == 4 and heads.tokens_last:
        found = found.transpose(0, 2, 1, 3)
    expected = applied(reading, x, positions)
    error = np.abs(found.reshape(expected.shape) - expected).max()
    if not error < _TOLERANCE * np.abs(expected).max():
        raise Unreadable("it is no selection and rotation of its operand")
