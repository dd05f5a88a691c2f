"""Numbers of JSON schemas that llguidance would read as others.

It keeps numbers as float64 and bounds of integers in 64 bits. A bound that is rounded outward lets
texts through that the schema forbids, so bounds are rounded inward before; a constant that is
rounded is another one, so it is refused. The least integer of 64 bits as a constant ends the
process: it is refused with them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from optc.errors import RequestError

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
#: The least bound that llguidance makes a pattern of, which is a float64, too.
_LEAST_BOUND = _LEAST + 1024
_LOW, _HIGH = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
#: Keys whose values are schemas by name, not keywords.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES = frozenset({"const", "enum", "default", "examples"})
#: A range of less than one behind an integer that it excludes begins with this share of it.
_SHARE = Decimal("1e-6")


def with_exact_numbers(text: str) -> str:
    """A schema whose bounds llguidance takes as they are, and which allows no text that the given
    one forbids.

    Args:
        text: JSON.

    Raises:
        RequestError: A number would be another one; says where.
    """
    given = json.loads(text)
    found = exact_numbers(given, "")
    return text if found is given else json.dumps(found)


def exact_numbers(schema: Any, pointer: str) -> Any:
    """As `with_exact_numbers`, of a parsed schema at a JSON pointer; the same object where nothing
    has to be changed.

    Raises:
        RequestError: A number would be another one; says where.
    """
    if isinstance(schema, list):
        items = [exact_numbers(one, f"{pointer}/{at}") for at, one in enumerate(schema)]
        return items if _differ(items, schema) else schema
    if not isinstance(schema, dict):
        return schema
    is_map = pointer.rpartition("/")[2] in _NAMED
    if not is_map:
        _check_constants(schema, pointer)
    found = {
        key: one if key in _VALUES and not is_map else exact_numbers(one, f"{pointer}/{_name(key)}")
        for key, one in schema.items()
    }
    changed = found if _differ(found.values(), schema.values()) else schema
    return changed if is_map else _with_bounds(changed, pointer)


def _differ(left: Any, right: Any) -> bool:
    return any(a is not b for a, b in zip(left, right, strict=True))


def _name(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _check_constants(schema: Mapping[str, Any], pointer: str) -> None:
    for key in ("const", "enum"):
        for number in _integers(schema.get(key)):
            if not _is_kept(number):
                raise RequestError(
                    f"{number} has more digits than a float64 holds",
                    where=_where(f"{pointer}/{key}"),
                    hint="ask for a string of digits",
                )


def _integers(value: Any) -> Iterator[int]:
    if type(value) is int:
        yield value
    for one in value.values() if isinstance(value, dict) else value if _is_list(value) else ():
        yield from _integers(one)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_kept(number: int) -> bool:
    """True if llguidance writes a constant as it is: what it reads within 64 bits as an integer,
    and beyond by the digits of the float64."""
    try:
        read = float(number)
    except OverflowError:
        return False
    if _LEAST <= number <= _MOST:
        return number != _LEAST and min(int(read), _MOST) == number
    return int(Decimal(repr(read))) == number


def _with_bounds(schema: dict[str, Any], pointer: str) -> dict[str, Any]:
    """The schema with bounds that are not rounded outward."""
    bounds = {key: schema[key] for key in (*_LOW, *_HIGH) if _is_number(schema.get(key))}
    whole = schema.get("type") != "number"
    found: dict[str, Any] = {}
    for key, bound in bounds.items():
        if whole and not (bound > _LEAST if key in _HIGH else bound <= _MOST):
            raise RequestError(
                f"{bound} is beyond integers of 64 bits", where=_where(f"{pointer}/{key}")
            )
        found[key] = _inward(bound, key in _LOW, whole)
    if schema.get("type") != "integer":
        _open_ends(found)
    if all(found.get(key) is bound for key, bound in bounds.items()) and len(found) == len(bounds):
        return schema
    return {**{key: one for key, one in schema.items() if key not in bounds}, **found}


def _inward(bound: int | float, is_low: bool, whole: bool) -> int | float:
    if whole and is_low and bound <= _LEAST:
        return _LEAST_BOUND
    if not isinstance(bound, int) or (not is_low and bound >= _MOST):
        return bound
    try:
        read = float(bound)
    except OverflowError:  # llguidance says that it has no pattern for so large a number
        return bound
    if (read < bound) if is_low else (read > bound):
        read = math.nextafter(read, math.inf if is_low else -math.inf)
    return bound if read == bound else int(read)


def _open_ends(bounds: dict[str, Any]) -> None:
    """An excluded integer is let in where the range reaches less than one from it: there the range
    begins a little behind it instead."""
    low = max((Decimal(repr(bounds[key])) for key in _LOW if key in bounds), default=None)
    high = min((Decimal(repr(bounds[key])) for key in _HIGH if key in bounds), default=None)
    if low is None or high is None or not 0 < high - low < 1:
        return
    step = Decimal(f"{(high - low) * _SHARE:.0e}")
    if low == bounds.get("exclusiveMinimum") and low == int(low):
        bounds.pop("exclusiveMinimum")
        bounds["minimum"] = float(low + step)
    if high == bounds.get("exclusiveMaximum") and high == int(high):
        bounds.pop("exclusiveMaximum")
        bounds["maximum"] = float(high - step)


def _is_number(value: object) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _where(pointer: str) -> str:
    return f"json_schema, at {pointer}"
