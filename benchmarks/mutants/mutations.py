"""Finds what can be changed in a module, one small change at a time.

Left out, because nobody tests it or a test could not see it: annotations, docstrings and other
strings, f-strings, what is raised with an error, asserts, decorators, log lines, `__repr__`,
`if TYPE_CHECKING`, protocols, abstract methods, `strict` of a `zip`, levels of logs, and constants
named ``CHUNK`` or ``AT_ONCE``: how much is done at once changes the time, not what comes out.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from benchmarks.mutants.source import Source

_COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "&"),
    ast.MatMult: ("@", "*"),
}
_LOGS = {"log", "logger", "logging"}
_UNTESTED_KEYWORDS = {"strict", "log_level"}
_AMOUNT = re.compile(r"(^|_)(CHUNK|AT_ONCE)(_|$)")
_UNTESTED_ERRORS = {"AssertionError", "NotImplementedError"}


@dataclass(frozen=True, order=True)
class Mutation:
    """One change of one module.

    Attributes:
        module: Path of the module in the repository.
        lineno: Line that changes, from 1.
        scope: Classes and function around it, joined by points; empty at the top.
        line: What it says, without indentation.
        becomes: What it says afterwards.
        kind: What is done.
        start, end: Bytes of the module that are replaced.
        new: By what.
    """

    module: str
    lineno: int
    scope: str
    line: str
    becomes: str
    kind: str
    start: int
    end: int
    new: str

    def apply(self, code: bytes) -> bytes:
        """The changed module."""
        return code[: self.start] + self.new.encode() + code[self.end :]


def find_mutations(module: str, text: str) -> list[Mutation]:
    """Every change of ``module`` there is, in the order of the text."""
    finder = _Finder(module, Source(text))
    finder.visit(finder.source.tree)
    return sorted(set(finder.found), key=lambda found: (found.start, found.end, found.new))


class _Finder(ast.NodeVisitor):
    def __init__(self, module: str, source: Source) -> None:
        self.module, self.source = module, source
        self.found: list[Mutation] = []
        self._functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self._scope: list[str] = []

    def _add(self, kind: str, span: tuple[int, int], new: str) -> None:
        start, end = span
        code = self.source.code
        first = code.rfind(b"\n", 0, start) + 1
        line, rest = (code[at:].split(b"\n", 1)[0].decode() for at in (first, end))
        becomes = (code[first:start].decode() + new + rest).split("\n", 1)[0]
        lineno = self.source.line_number(start)
        shown = ".".join(self._scope), line.strip(), becomes.strip()
        self.found.append(Mutation(self.module, lineno, *shown, kind, start, end, new))

    # operators

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            words, others = _COMPARISONS[type(op)]
            span = self._between(left, words, right)
            for other in others:
                self._add("comparison", span, other)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        words, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._add("boolean operator", self._between(left, words, right), other)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not (isinstance(node.op, ast.BitOr) and (_is_type(node.left) or _is_type(node.right))):
            words, other = _ARITHMETIC[type(node.op)]
            self._add("arithmetic", self._between(node.left, words, node.right), other)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        words, other = _ARITHMETIC[type(node.op)]
        self._add("arithmetic", self._between(node.target, f"{words}=", node.value), f"{other}=")
        self._remove(node)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        start, _ = self.source.span(node)
        self._add("unary operator", (start, self.source.next_token(start)), "")
        self.generic_visit(node)

    def _between(self, left: ast.expr, words: str, right: ast.expr) -> tuple[int, int]:
        return self.source.operator(self.source.span(left)[1], self.source.span(right)[0], words)

    # values

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if (call := node.value) and isinstance(call, ast.Call) and self._is_an_end(node, call):
            self._add("constant", self.source.span(call.args[1]), "0")  # 2 has the same end
            call.args.pop()
        if isinstance(node.slice, ast.Constant) and node.slice.value == 0:
            # Mostly the only one: the last is the same. So the first becomes the second alone.
            self._add("constant", self.source.span(node.slice), "1")
            self.visit(node.value)
        else:
            self.generic_visit(node)

    def _is_an_end(self, node: ast.Subscript, call: ast.Call) -> bool:
        """True of ``split(…, 1)[0]`` and ``rsplit(…, 1)[-1]``."""
        name = self.source.text(call.func).rpartition(".")[2]
        end = {"split": "0", "rsplit": "-1"}.get(name) == self.source.text(node.slice)
        return end and [self.source.text(each) for each in call.args[1:]] == ["1"]

    def visit_Constant(self, node: ast.Constant) -> None:
        span, value = self.source.span(node), node.value
        if isinstance(value, bool):
            self._add("constant", span, str(not value))
        elif isinstance(value, int | float):
            for other in (value + 1, value - 1):
                if other != value:  # of a large float it is the same
                    self._add("constant", span, f"{other!r}" if other >= 0 else f"({other!r})")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            returns = self._functions[-1].returns
            if isinstance(returns, ast.Name) and returns.id == "bool":
                self._negate("return", node.value)
            else:
                self._add("return", self.source.span(node.value), "None")
        self.generic_visit(node)

    # conditions

    def visit_If(self, node: ast.If) -> None:
        test = self.source.text(node.test)
        if test.endswith("TYPE_CHECKING"):
            self._visit_all(node.orelse)
        elif not test.startswith("__name__"):
            self._negate("condition", node.test)
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate("condition", node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate("condition", node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate("condition", test)
        self.generic_visit(node)

    def _negate(self, kind: str, test: ast.expr) -> None:
        """Negate a test whose operator alone does not do that already."""
        alone = isinstance(test, ast.Compare) and len(test.ops) == 1
        negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        if not alone and not negated and not isinstance(test, ast.Constant):
            self._add(kind, self.source.span(test), f"not ({self.source.text(test)})")

    # statements

    def visit_Break(self, node: ast.Break) -> None:
        self._add("loop", self.source.span(node), "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add("loop", self.source.span(node), "break")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            if self.source.text(node.value.func).split(".")[0] in _LOGS:
                return
            self._remove(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        stored = isinstance(node.targets[0], ast.Attribute | ast.Subscript)
        constructor = self._functions and self._functions[-1].name in ("__init__", "__post_init__")
        if stored and not constructor:  # without it the attribute would not be there at all
            self._remove(node)
        if not all(_AMOUNT.search(self.source.text(target)) for target in node.targets):
            self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._remove(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if error is None or self.source.text(error) not in _UNTESTED_ERRORS:
            self._remove(node)

    def _remove(self, node: ast.stmt) -> None:
        self._add("statement", self.source.span(node), "pass")

    # what is not changed, or only in part

    def visit_Call(self, node: ast.Call) -> None:
        self.visit(node.func)
        args = node.args
        if self.source.text(node.func) == "operand" and self.source.text(args[-1]) == "0":
            self._add("constant", self.source.span(args[-1]), "1")  # as of a subscript
            args = args[:-1]
        self._visit_all(args)
        self._visit_all([each for each in node.keywords if each.arg not in _UNTESTED_KEYWORDS])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        marks = {self.source.text(mark).split(".")[-1] for mark in node.decorator_list}
        if node.name == "__repr__" or marks & {"abstractmethod", "overload"}:
            return
        self._visit_all([*node.args.defaults, *(d for d in node.args.kw_defaults if d)])
        self._functions.append(node)
        self._visit_inside(node)
        self._functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any(self.source.text(base).split("[")[0] == "Protocol" for base in node.bases):
            self._visit_inside(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def _visit_inside(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._scope.append(node.name)
        self._visit_all(node.body)
        self._scope.pop()

    def _visit_all(self, nodes: list[ast.expr] | list[ast.stmt] | list[ast.keyword]) -> None:
        for node in nodes:
            self.visit(node)


def _is_type(node: ast.expr) -> bool:
    """True if an operand of ``|`` looks like a type: None, a builtin or a name in CamelCase."""
    if isinstance(node, ast.Subscript):
        return _is_type(node.value)
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, str)
    name: str = getattr(node, "id", "") or getattr(node, "attr", "")
    builtin = name in ("int", "float", "str", "bytes", "bool", "list", "dict", "tuple", "set")
    return builtin or (name[:1].isupper() and not name.isupper())
