"""Jinja's sandbox with a budget: what a chat template may do, make and print is bounded (ADR 0079).

Jinja's own sandbox keeps a template from Python's internals, not from taking all time and memory.
Here every loop, call, filter, test, operator and output is counted and pays for the values that it
touches; what would make a large value from small ones is refused before it is computed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import _PassArg
from jinja2.visitor import NodeTransformer

from optc.errors import RequestError

#: Units of work: a second or two of an attack, hundreds of turns of a conversation.
WORK = 1 << 23
#: Characters of the longest text; and of all texts together that are made on the way.
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
#: Of HTML, and slow on texts made for that; no chat template has a use for them.
_LEFT_OUT = ("striptags", "urlize", "xmlattr", "wordwrap")
#: A width of five digits or one that is an argument, in a format.
_WIDE = re.compile(r"[0-9]{5}|%[-+ #0-9.]*\*|\{[^{}]*\{")


@dataclass
class Budget:
    """What is left of one rendering."""

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

    def made(self, value: Any) -> Any:
        """Pay for a result, which is given back.

        Raises:
            SecurityError: It is too long, or too much was made.
        """
        self.spend(1)
        if isinstance(value, (str, bytes, list, tuple)):
            _check_length(len(value))
            self.text -= len(value)
            self.spend(len(value) >> 9)
            if self.text < 0:
                raise SecurityError("it makes too much text")
        return value


_BUDGET: ContextVar[Budget] = ContextVar("budget")


@contextmanager
def budget() -> Iterator[None]:
    """A budget for what is compiled and rendered while it lasts, in this thread."""
    token = _BUDGET.set(Budget(WORK, MADE_TEXT))
    try:
        yield
    finally:
        _BUDGET.reset(token)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles templates that pay for what they do; to be used within `budget`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols"],
            finalize=_counted,
            optimized=False,  # it would count once, as it compiles
        )
        self.globals.update(raise_exception=_refuse, strftime_now=_now)
        del self.globals["lipsum"]
        filters = {**self.filters, "tojson": _to_json, _JOIN: _joined}
        self.filters = {n: _paying(n, f) for n, f in filters.items() if n not in _LEFT_OUT}
        self.filters[_COUNT] = _counted
        tests: dict[str, Any] = self.tests
        self.tests = {name: _paying(name, test) for name, test in tests.items()}

    @staticmethod
    def concat(texts: Iterable[str]) -> str:
        """Joins the pieces that a macro, a block or the template printed."""
        pieces = list(texts)
        _check_length(sum(map(len, pieces)))
        joined: str = _BUDGET.get().made("".join(pieces))
        return joined

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls a method, a macro or a global function."""
        method = getattr(function, "__wrapped__", function)  # of a format that Jinja guards
        receiver = getattr(method, "__self__", None)
        name = getattr(method, "__name__", "")
        _check_operation(name, [receiver, *args, *kwargs.values()])
        return _BUDGET.get().made(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Computes ``+``, ``*``, ``**`` or ``%``."""
        _check_operator(operator, left, right)
        return _BUDGET.get().made(super().call_binop(context, operator, left, right))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Subscribes or slices."""
        _BUDGET.get().step(argument)
        found = super().getitem(obj, argument)
        return _BUDGET.get().made(found) if isinstance(argument, slice) else found

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """The syntax tree, with a count in every loop and comparison, and ``~`` as a filter."""
        tree = super()._parse(source, name, filename)
        instrumented: nodes.Template = _Instrument().visit(tree)
        return instrumented


_COUNT, _JOIN = " count", " join"  # names that no template can write


class _Instrument(NodeTransformer):
    """Puts a count into every loop, comparison and key, and makes a filter of ``~``."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        step = _filter(nodes.Const(None, lineno=node.lineno), _COUNT)
        node.body.insert(0, nodes.ExprStmt(step, lineno=node.lineno))
        if node.test is not None:
            node.test = _filter(node.test, _COUNT)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _filter(node.expr, _COUNT)
        for operand in node.ops:
            operand.expr = _filter(operand.expr, _COUNT)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.key = _filter(node.key, _COUNT)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), _JOIN)


def _filter(node: nodes.Node, name: str) -> nodes.Filter:
    operand: Any = node
    return nodes.Filter(operand, name, [], [], None, None, lineno=node.lineno)


def _paying(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test that pays for its operands and its result."""
    first = 0 if _PassArg.from_obj(function) is None else 1

    @wraps(function)  # Jinja's marks of what a filter is given beside its operands go along
    def pays(*args: Any, **kwargs: Any) -> Any:
        given, operands = args[:first], list(args[first:])
        if name == "join":
            operands[0] = list(operands[0])  # it may be made as it is read
        _check_operation(name, [*operands, *kwargs.values()])
        return _BUDGET.get().made(function(*given, *operands, **kwargs))

    return pays


def _check_operation(name: str, operands: Sequence[Any]) -> None:
    """Refuse a call or filter whose result may be far longer than what it is given."""
    _BUDGET.get().step(*operands)
    if name in _WIDTHS:
        for operand in operands[1:]:
            if isinstance(operand, int) and abs(operand) > WIDTH:
                raise SecurityError(f"{name} of {operand:,}")
    if name == "replace" and len(operands) > 2 and isinstance(operands[0], str):
        text, old, new = map(str, operands[:3])
        _check_length(len(text) + text.count(old) * len(new))
    elif name == "join" and len(operands) > 1:
        separator, items = sorted(operands[:2], key=lambda operand: not isinstance(operand, str))
        if isinstance(separator, str) and hasattr(items, "__len__"):
            _check_length(len(separator) * len(items) + _size(items))
    elif name in _PRODUCTS:
        if "format" in name and any(_WIDE.search(o) for o in operands if isinstance(o, str)):
            raise SecurityError("a format with a width of its own")
        _check_length(_product(operands))
    elif name == "sum" and any(isinstance(o, (list, tuple)) for o in operands[1:]):
        raise SecurityError("a sum of lists")


def _check_operator(operator: str, left: Any, right: Any) -> None:
    """Refuse what would be very large, before it is computed."""
    _BUDGET.get().step(left, right)
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
                _check_length(one * len(other))
    elif operator == "%" and isinstance(left, (str, bytes)):
        if _WIDE.search(str(left)):
            raise SecurityError("a format with a width of its own")
        _check_length(_product([left, right]))


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
        _BUDGET.get().spend(1)
    return count


def _check_length(length: int) -> None:
    if length > LONGEST_TEXT:
        raise SecurityError(f"a text or list of more than {LONGEST_TEXT:,} characters or elements")


def _counted(value: Any) -> Any:
    """The value, paid for with all that is in it: it is about to be printed or compared."""
    _BUDGET.get().step(value)
    return value


def _joined(values: list[Any]) -> str:
    """What ``~`` gives."""
    _BUDGET.get().step(values)
    texts = [str(value) for value in values]
    _check_length(sum(map(len, texts)))
    return "".join(texts)


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _now(pattern: str) -> str:
    """Templates may state the date of the conversation."""
    return datetime.now().strftime(pattern)


def _refuse(message: str) -> None:
    raise RequestError(message, where="messages", hint="the model's chat template refuses them")
