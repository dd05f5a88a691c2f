"""Distributions of lengths in tokens, by name: ``lognormal(256,0.6)``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from optc.errors import InputError

Lengths = npt.NDArray[np.int64]
#: Names, what their numbers are, and how ``size`` values are drawn.
_KINDS: dict[str, tuple[tuple[str, ...], Callable[..., npt.NDArray[np.float64]]]] = {
    "fixed": (("tokens",), lambda rng, size, n: np.full(size, n)),
    "uniform": (("low", "high"), lambda rng, size, a, b: rng.integers(a, b + 1, size) * 1.0),
    "exponential": (("mean",), lambda rng, size, mean: rng.exponential(mean, size)),
    "lognormal": (
        ("median", "sigma"),
        lambda rng, size, median, sigma: median * np.exp(sigma * rng.standard_normal(size)),
    ),
}


def draw_lengths(text: str, size: int, rng: np.random.Generator, where: str) -> Lengths:
    """``size`` lengths, at least 1, from the distribution that ``text`` names.

    Args:
        text: ``128``, ``uniform(low,high)`` (both included), ``exponential(mean)`` or
            ``lognormal(median,sigma)``, sigma that of the logarithm.
        size: How many.
        rng: Where they come from.
        where: The key, for messages.

    Raises:
        InputError: No such distribution, or its numbers make no sense.
    """
    match = re.fullmatch(r"(?:([a-z]+)\(([^()]*)\)|(\d+))", text.strip())
    kind = (match[1] or "fixed") if match else ""
    if match is None or kind not in _KINDS:
        raise _error(text, where)
    names, draw = _KINDS[kind]
    numbers = _numbers(match[2] if match[1] else match[3])
    if len(numbers) != len(names) or min(numbers) < 0 or numbers[0] < 1:
        raise _error(text, where)
    if kind == "uniform" and numbers[1] < numbers[0]:
        raise _error(text, where)
    return np.maximum(1, np.rint(draw(rng, size, *numbers)).astype(np.int64))


def _numbers(text: str) -> Sequence[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return ()
    return numbers if all(np.isfinite(numbers)) else ()


def _error(text: str, where: str) -> InputError:
    known = [f"{name}({','.join(of)})" for name, (of, _) in _KINDS.items() if name != "fixed"]
    return InputError(
        f"{text!r} is no distribution of lengths",
        where=where,
        hint=f"a number of tokens, or one of {', '.join(known)}",
    )
