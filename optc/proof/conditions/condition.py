"""Conditions that a pipeline states of figures: ``kl_mean<=0.02``, ``ttft_ms.p90@8<=1.1x``.

    CONDITION = METRIC ["@" CASE] RELATION BOUND
    RELATION  = "<=" | ">=" | "<" | ">" | "==" | "!="
    BOUND     = NUMBER ["x" | "%" | UNIT]

A metric is a name, or several with dots where figures have parts. A case is one of those that a
figure was measured for (an engine's name, a number of requests at once); without one all count.
``1.1x`` is 1.1 times the baseline's figure, ``95%`` is 0.95, and units are those of sizes
(`optc.system.units`).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from optc.errors import InputError
from optc.system.suggest import near
from optc.system.units import byte_text, parse_bytes

RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
#: What a typesetter makes of two of them.
_SPELLED = {"≤": "<=", "≥": ">="}
_CONDITION = re.compile(
    r"\s*(?P<metric>[A-Za-z]\w*(?:\.\w+)*)\s*(?:@\s*(?P<case>[^\s<>=!≤≥]+))?\s*"
    r"(?P<relation><=|>=|==|!=|<|>|≤|≥)\s*(?P<bound>\S.*?)\s*"
)
_BOUND = re.compile(r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(?P<unit>[x%]?)")
#: A metric that is a number of bytes.
_BYTES = re.compile(r"(^|_)bytes($|_)")
_EXAMPLE = "such as 'kl_mean<=0.02', 'decode_tokens_per_s@8>=0.95x' or 'bytes<=20MiB'"


@dataclass(frozen=True)
class Condition:
    """One condition.

    Attributes:
        text: As it was written.
        metric: Name of a figure.
        case: What the figure was measured for; empty means all.
        relation: A key of `RELATIONS`.
        number: The bound, or the factor.
        of_baseline: Whether ``number`` is a factor of the baseline's figure.
    """

    text: str
    metric: str
    case: str
    relation: str
    number: float
    of_baseline: bool = False

    def holds(self, value: float, bound: float) -> bool:
        """True if ``value`` stands to ``bound`` as the condition says."""
        return RELATIONS[self.relation](value, bound)


def parse_condition(text: str, where: str) -> Condition:
    """The condition that ``text`` states.

    Args:
        text: See the module.
        where: The option, for messages.

    Raises:
        InputError: It states none.
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise InputError(f"{text!r} is no condition", where=where, hint=_EXAMPLE)
    number, of_baseline = _bound(found["bound"], text, where)
    relation = _SPELLED.get(found["relation"], found["relation"])
    return Condition(
        text.strip(), found["metric"], found["case"] or "", relation, number, of_baseline
    )


def check_metric(
    condition: Condition,
    known: Sequence[str],
    where: str,
    elsewhere: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse a condition on a figure that there is not; ``elsewhere`` says what measures others.

    Raises:
        InputError: It is none of ``known``; names the nearest.
    """
    if condition.metric in known:
        return
    if condition.metric in elsewhere:
        raise InputError(
            f"{condition.metric} is not measured, so {condition.text!r} cannot be told",
            where=where,
            hint=elsewhere[condition.metric],
        )
    raise InputError(
        f"there is no figure {condition.metric!r} in {condition.text!r}",
        where=where,
        hint=near(condition.metric, known),
    )


def figure_text(metric: str, value: float | None, digits: int = 6) -> str:
    """A figure for reading: of bytes with a unit, and exactly."""
    if value is None:
        return "-"
    if not _BYTES.search(metric):
        return f"{value:.{digits}g}"
    text = byte_text(round(value))
    return text if abs(value) < 1024 else f"{text} ({value:.0f} B)"


def _bound(text: str, condition: str, where: str) -> tuple[float, bool]:
    """The number that a bound states, and whether it is a factor."""
    found = _BOUND.fullmatch(text)
    if found is None:
        try:
            return float(parse_bytes(text, where)), False
        except InputError:
            raise InputError(
                f"{text!r} in {condition!r} is no bound", where=where, hint=_EXAMPLE
            ) from None
    value = float(found["number"])
    if not math.isfinite(value):
        raise InputError(f"{text!r} in {condition!r} is too large", where=where)
    return value / 100 if found["unit"] == "%" else value, found["unit"] == "x"
