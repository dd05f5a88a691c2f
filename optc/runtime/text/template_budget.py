"""The budget of a chat template: what operations cost, what is refused before it is computed.

The limits and why they are such: ADR 0079.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MappingView, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import Any

from jinja2.exceptions import SecurityError

#: Units of work: a second or two of an attack, hundreds of turns of a conversation.
WORK = 1 << 23
#: Characters of the longest text; and bytes of all texts and lists that are made on the way.
LONGEST_TEXT = 1 << 24
MADE_TEXT = 1 << 29
#: Bits of the largest integer, and the largest width, precision, indentation or count of a filter.
INTEGER_BITS = 4096
WIDTH = 4096
#: Work of one step, beside that of its values: 512 characters or one element are a unit.
_STEP = 8
#: Methods and filters whose result is as long as their operands multiplied.
_PRODUCTS = frozenset({"expandtabs", "translate", "format", "format_map", "indent", "tojson"})
#: Those whose numbers are widths or counts.
_WIDTHS = frozenset(
    {"center", "ljust", "rjust", "zfill", "expandtabs", "to_bytes", "indent", "tojson"}
    | {"batch", "slice", "round", "truncate"}
)
#: Those that compare values with each other: each one about log2(n) times.
_SORTS = frozenset({"sort", "dictsort", "groupby", "unique", "min", "max"})
#: What may be called of a value of each type; all that a template has no use for may cost anything.
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(name for name in dir(str) if name[0] != "_") - {"maketrans", "encode"},
    dict: frozenset({"get", "items", "keys", "values", "copy"}),
    list: frozenset({"index", "count", "copy"}),
    tuple: frozenset({"index", "count"}),
    float: frozenset({"is_integer"}),
}
_VALUES = (str, dict, list, tuple, float, int, bytes, bytearray, type, range, set, frozenset)
#: A width of five digits or one that is an argument, in a format.
_WIDE = re.compile(r"[0-9]{5}|%[-+ #0-9.]*\*|\{[^{}]*\{")


@dataclass
class Budget:
    """The work and text that are left of one rendering."""

    work: int
    text: int

    def spend(self, units: int) -> None:
        """Pay for work.

        Raises:
            SecurityError: Nothing is left.
        """
        self.work -= units
        if self.work < 0:
            raise SecurityError("it takes too many steps")

    def step(self, *values: object) -> None:
        """Pay for one step and for every element and character of its values, at any depth."""
        self.spend(_STEP)
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            self.spend(1)
            if isinstance(value, (str, bytes)):
                self.spend(len(value) >> 9)
            elif isinstance(value, Mapping):
                waiting.extend(value)
                waiting.extend(value.values())
                self.spend(2 * len(value))
            elif isinstance(value, (list, tuple, set, frozenset)):
                waiting.extend(value)
                self.spend(len(value))
            elif isinstance(value, (range, MappingView)):
                self.spend(len(value))

    def made(self, value: Any) -> Any:
        """Pay for a result, which is given back.

        Raises:
            SecurityError: It is too long, or too much was made.
        """
        self.spend(1)
        if isinstance(value, (str, bytes, list, tuple)):
            check_length(len(value))
            listed = isinstance(value, (list, tuple))
            self.spend(len(value) >> (4 if listed else 9))
            self.text -= len(value) * _bytes_each(value)
            if self.text < 0:
                raise SecurityError("it makes too much text")
        return value


_BUDGET: ContextVar[Budget] = ContextVar("budget")


def current() -> Budget:
    """That of the rendering in this thread."""
    return _BUDGET.get()


@contextmanager
def budget() -> Iterator[None]:
    """A budget for what is compiled and rendered while it lasts, in this thread."""
    token = _BUDGET.set(Budget(WORK, MADE_TEXT))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def check_operation(name: str, operands: Sequence[Any]) -> None:
    """Refuse a call or filter whose result may be far longer than what it is given, or that may
    take far longer than to read it."""
    before = current().work
    current().step(*operands)
    if name in _SORTS:
        current().spend((before - current().work) * 24)  # of what could be made, log2
    _pay_for_pairs(operands)
    if name in _WIDTHS:
        for operand in operands[1:]:
            if isinstance(operand, int) and abs(operand) > WIDTH:
                raise SecurityError(f"{name} of {operand:,}")
    if name == "replace" and len(operands) > 2 and isinstance(operands[0], str):
        text, old, new = map(str, operands[:3])
        check_length(len(text) + text.count(old) * len(new))
    elif name == "join" and len(operands) > 1:
        separator, items = sorted(operands[:2], key=lambda operand: not isinstance(operand, str))
        if isinstance(separator, str) and hasattr(items, "__len__"):
            check_length(len(separator) * len(items) + _size(items))
    elif name in _PRODUCTS:
        if "format" in name and any(_WIDE.search(o) for o in operands if isinstance(o, str)):
            raise SecurityError("a format with a width of its own")
        check_length(_product(operands))
    elif name == "sum" and any(isinstance(o, (list, tuple)) for o in operands[1:]):
        raise SecurityError("a sum of lists")


def check_method(method: object, receiver: object, name: str) -> None:
    """Refuse a method of a plain value that is not among those that templates may call."""
    static = receiver is None and isinstance(method, BuiltinFunctionType)  # such as str.maketrans
    if static or isinstance(receiver, _VALUES):
        kind = next((one for one in _METHODS if isinstance(receiver, one)), None)
        if kind is None or name not in _METHODS[kind]:
            raise SecurityError(f"the method {name[:40]} is not for templates")


def _pay_for_pairs(operands: Sequence[Any]) -> None:
    """Pay for looking at each part of one operand for each of another: to search a text from its
    end, to strip many characters, to follow a path of attributes of each element."""
    texts = sorted(len(one) for one in operands if isinstance(one, (str, bytes)))
    if len(texts) > 1:
        current().spend(texts[-1] * texts[-2] >> 10)
    paths = sum(1 + one.count(".") for one in operands[1:] if isinstance(one, str))
    for one in operands[:1]:
        if isinstance(one, (list, tuple, range, Mapping, MappingView)):
            current().spend(len(one) * paths)


def _bytes_each(value: str | bytes | list[Any] | tuple[Any, ...]) -> int:
    """Most bytes of a character or element."""
    if isinstance(value, (list, tuple)):
        return 8
    return 1 if value.isascii() else 4


def check_operator(operator: str, left: Any, right: Any) -> None:
    """Refuse what would be very large, before it is computed."""
    current().step(left, right)
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length()
        if operator == "*":
            bits += right.bit_length()
        elif operator == "**":
            bits *= abs(right)
        if bits > INTEGER_BITS:
            raise SecurityError("an integer of too many digits")
    elif operator == "*":
        for one, other in ((left, right), (right, left)):
            if isinstance(one, int) and hasattr(other, "__len__"):
                check_length(one * len(other))
    elif operator == "%" and isinstance(left, (str, bytes)):
        if _WIDE.search(str(left)):
            raise SecurityError("a format with a width of its own")
        check_length(_product([left, right]))


def _product(operands: Sequence[Any]) -> int:
    """At most so many characters: the first operand for each character of the others."""
    first, *rest = operands
    widths = sum(abs(one) if isinstance(one, int) else _size(one) for one in rest)
    return (1 + _size(first)) * (1 + widths)


def _size(value: Any) -> int:
    """Characters and elements of a value, at any depth."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        count += len(one) if isinstance(one, (str, bytes)) else 1
        if isinstance(one, Mapping):
            waiting.extend(one)
            waiting.extend(one.values())
        elif isinstance(one, (list, tuple, set, frozenset)):
            waiting.extend(one)
        current().spend(1)
    return count


def check_short(operands: Sequence[Any]) -> None:
    """Refuse operands of more than `WIDTH` characters and elements."""
    if sum(map(_size, operands)) > WIDTH:
        raise SecurityError(f"a filter for {WIDTH:,} characters at most")


def check_length(length: int) -> None:
    """Refuse a text or list of this length if it is too long."""
    if length > LONGEST_TEXT:
        raise SecurityError(f"a text or list of more than {LONGEST_TEXT:,} characters or elements")
