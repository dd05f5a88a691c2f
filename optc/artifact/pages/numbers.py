"""Numbers for reading: significant digits, thousands, powers of ten, and units."""

from __future__ import annotations

import math

#: What stands where there is no figure.
NOTHING = "\u2013"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
#: From here on, and below the other, a number is written with a power of ten.
_LARGE, _SMALL = 1e6, 1e-4
MINUS = "\u2212"
#: Thin and unbreakable: a number and its unit stay together.
SPACE = "\u202f"
TIMES = "\u00d7"


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits; a dash where there is none."""
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    if value and not _SMALL <= abs(value) < _LARGE:
        mantissa, power = f"{value:.{digits - 1}e}".split("e")
        return _signed(
            f"{mantissa}{SPACE}{TIMES}{SPACE}10{str(int(power)).translate(_SUPERSCRIPT)}"
        )
    places = max(0, digits - 1 - _magnitude(value, digits))
    return _signed(f"{value:,.{places}f}")


def count(value: int) -> str:
    """A whole number, all of its digits."""
    return _signed(f"{value:,}")


def with_unit(value: float | None, unit: str, digits: int = 3) -> str:
    """A number and its unit."""
    return NOTHING if value is None else f"{number(value, digits)}{SPACE}{unit}"


def percent(share: float | None, digits: int = 3) -> str:
    """A share of one in percent."""
    return NOTHING if share is None else with_unit(100 * share, "%", digits)


def seconds(value: float | None) -> str:
    """A time: ``850 ms``, ``4.2 s``, ``12 min``."""
    if value is None:
        return NOTHING
    if value < 1:
        return with_unit(1000 * value, "ms", 2 if value >= 1e-3 else 1)
    return with_unit(value, "s", 2) if value < 120 else with_unit(value / 60, "min", 2)


def _magnitude(value: float, digits: int) -> int:
    """The power of ten of the first digit, once the number is rounded."""
    return int(f"{abs(value):.{digits - 1}e}".split("e")[1]) if value else 0


def _signed(text: str) -> str:
    return text.replace("-", MINUS)
