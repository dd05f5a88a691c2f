"""Jinja's sandbox with a budget: what a chat template may do, make and print is bounded (ADR 0079).

Jinja's own sandbox keeps a template from Python's internals, not from taking all time and memory.
Here every loop, call, filter, test, operator and output is counted and pays for the values that it
touches; what would make a large value from small ones is refused before it is computed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import _PassArg
from jinja2.visitor import NodeTransformer

from optc.errors import RequestError
from optc.runtime.text.template_budget import (
    check_length,
    check_method,
    check_operation,
    check_operator,
    check_short,
    current,
)

#: Of HTML, and slow on texts made for that: they take short ones.
_SHORT = frozenset({"striptags", "urlize", "xmlattr", "wordwrap"})


class _Generation(Extension):
    """``{% generation %}``, by which templates mark what the assistant says for trainings. What
    stands in it is rendered as if the tags were not there, in a scope of its own."""

    tags = {"generation"}  # noqa: RUF012 - Jinja's own attribute

    def parse(self, parser: Parser) -> nodes.Node:
        """The nodes between the tags."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles templates that pay for what they do; to be used within `budget`."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],
            finalize=_counted,
            optimized=False,  # it would count once, as it compiles
        )
        self.globals.update(raise_exception=_refuse, strftime_now=_now)
        del self.globals["lipsum"]  # random texts
        filters: dict[str, Callable[..., Any]] = {
            **self.filters,
            "tojson": _to_json,
            _JOIN: _joined,
        }
        self.filters = {name: _paying(name, filter_) for name, filter_ in filters.items()}
        self.filters |= {_COUNT: _counted, _PART: _part}
        tests: dict[str, Any] = self.tests
        self.tests = {name: _paying(name, test) for name, test in tests.items()}

    @staticmethod
    def concat(texts: Iterable[str]) -> str:
        """Joins the pieces that a macro, a block or the template printed."""
        pieces = list(texts)
        check_length(sum(map(len, pieces)))
        joined: str = current().made("".join(pieces))
        return joined

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls a method, a macro or a global function."""
        method = getattr(function, "__wrapped__", function)  # of a format that Jinja guards
        receiver = getattr(method, "__self__", None)
        name = getattr(method, "__name__", "")
        check_method(method, receiver, name)
        check_operation(name, [receiver, *args, *kwargs.values()])
        return current().made(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Computes ``+`` and its like; ``-`` takes long, too, between the keys of mappings."""
        check_operator(operator, left, right)
        return current().made(super().call_binop(context, operator, left, right))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Subscribes. Slices do not come here (`_Instrument.visit_Getitem`)."""
        current().step(argument)
        return super().getitem(obj, argument)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """The syntax tree, with a count in every loop, comparison and slice; ``~`` is a filter."""
        tree = super()._parse(source, name, filename)
        instrumented: nodes.Template = _Instrument().visit(tree)
        return instrumented


_COUNT, _JOIN, _PART = " count", " join", " part"  # names that no template can write


class _Instrument(NodeTransformer):
    """Puts a count into every loop, comparison, slice and key, and makes a filter of ``~``."""

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

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(node, _PART) if isinstance(node.arg, nodes.Slice) else node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.key = _filter(node.key, _COUNT)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), _JOIN)


def _filter(node: nodes.Node, name: str) -> nodes.Filter:
    """An expression behind one of our own filters."""
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _paying(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test that pays for its operands and its result."""
    first = 0 if _PassArg.from_obj(function) is None else 1

    @wraps(function)  # Jinja's marks of what a filter is given beside its operands go along
    def pays(*args: Any, **kwargs: Any) -> Any:
        given, operands = args[:first], list(args[first:])
        if name == "join":
            operands[0] = list(operands[0])  # it may be made as it is read
        check_operation(name, [*operands, *kwargs.values()])
        if name in _SHORT:
            check_short(operands)
        return current().made(function(*given, *operands, **kwargs))

    return pays


def _counted(value: Any) -> Any:
    """The value, paid for with all that is in it: it is about to be printed or compared."""
    current().step(value)
    return value


def _part(value: Any) -> Any:
    """A slice, paid for: Jinja makes it without asking the environment."""
    return current().made(value)


def _joined(values: list[Any]) -> str:
    """The result of ``~``; `_paying` has paid for the values."""
    texts = [str(value) for value in values]
    check_length(sum(map(len, texts)))
    return "".join(texts)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers' own filter, in the order of its arguments."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _now(pattern: str) -> str:
    """Templates may state the date of the conversation."""
    return datetime.now().strftime(pattern)


def _refuse(message: str) -> None:
    raise RequestError(message, where="messages", hint="the model's chat template refuses them")
