"""A draft that is made of the target: what ``--draft self:…`` says of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from optc.errors import InputError
from optc.system.suggest import near

#: What a text starts with that names no folder.
PREFIX = "self:"
#: Bits of weights for which there is a recipe ``int{bits}-fused`` that rounds by GPTQ.
BITS = (2, 3, 4)
#: The keys of a specification.
KEYS = ("bits", "depth", "width", "distill")
#: Bits that ``self:auto`` tries, the cheapest first.
_TRIED = (2, 3)
#: Seconds of the units that a time may have.
_UNITS = {"m": 60.0, "s": 1.0}
_WHERE = "--draft"
T = TypeVar("T", int, float)


@dataclass(frozen=True)
class DraftSpec:
    """The changes that make a draft of the target.

    Attributes:
        bits: Of its weights; None keeps the target's recipe.
        depth: Share of the weights in sub-layers that stays (``prune-depth``); None is all.
        width: Share of the neurons of MLPs that stays (``prune-width``); None is all.
        distill: Minutes for which what pruning left learns the target's predictions; None is none.
    """

    bits: int | None = None
    depth: float | None = None
    width: float | None = None
    distill: float | None = None

    @property
    def text(self) -> str:
        """As on the command line."""
        values = {"bits": self.bits, "depth": self.depth, "width": self.width}
        texts = [f"{k}={v:g}" for k, v in values.items() if v is not None]
        texts += [] if self.distill is None else [f"distill={self.distill:g}m"]
        return PREFIX + ",".join(texts)


def parse_draft(text: str) -> tuple[DraftSpec, ...]:
    """The drafts that a text names of which one is made: one, or for ``self:auto`` several to
    choose among; none where it is a folder.

    Raises:
        InputError: An unknown key, a value that is none, or nothing at all.
    """
    if not text.startswith(PREFIX):
        return ()
    body = text.removeprefix(PREFIX)
    if body == "auto":
        return tuple(DraftSpec(bits) for bits in _TRIED)
    values: dict[str, str] = {}
    for item in body.split(","):
        key, equals, value = (part.strip() for part in item.partition("="))
        _check_key(key, text)
        if not equals or key in values:
            problem = f"{key!r} has no value" if not equals else f"{key!r} is given twice"
            raise InputError(problem, where=f"{_WHERE} {text}", hint=f"{PREFIX}bits=2,depth=0.5")
        values[key] = value
    bits = _number(values, "bits", int, lambda n: n in BITS, "2, 3 or 4", text)
    depth, width = (
        _number(values, key, float, lambda x: 0 < x < 1, "a share between 0 and 1", text)
        for key in ("depth", "width")
    )
    distill = _number(values, "distill", _minutes, lambda m: m > 0, "a time, such as 10m", text)
    if distill is not None and depth is None and width is None:
        raise InputError(
            "distill trains what pruning leaves, and this draft is not pruned",
            where=f"{_WHERE} {text}",
            hint=f"{PREFIX}depth=0.5,bits=4,distill=10m",
        )
    return (DraftSpec(bits, depth, width, distill),)


def _minutes(text: str) -> float:
    """Of ``10m`` or ``90s``.

    Raises:
        ValueError: It is no such time.
    """
    minutes = float(text[:-1]) * _UNITS.get(text[-1:], math.nan) / 60
    if not math.isfinite(minutes):
        raise ValueError(text)
    return minutes


def _check_key(key: str, text: str) -> None:
    where = f"{_WHERE} {text}"
    if key not in KEYS:
        problem = f"unknown key {key!r}" if key else "says nothing of the draft"
        hint = near(key, KEYS) if key else f"{PREFIX}bits=2, {PREFIX}bits=3,depth=0.5, {PREFIX}auto"
        raise InputError(problem, where=where, hint=hint)


def _number(
    values: dict[str, str],
    key: str,
    kind: Callable[[str], T],
    fits: Callable[[T], bool],
    wanted: str,
    text: str,
) -> T | None:
    if key not in values:
        return None
    try:
        number = kind(values[key])
    except ValueError:
        number = None
    if number is None or not fits(number):
        raise InputError(f"{key}={values[key]}", where=f"{_WHERE} {text}", hint=wanted)
    return number
