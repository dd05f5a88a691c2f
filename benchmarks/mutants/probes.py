"""Puts probes into a module: statements that note which test runs a mutated line.

A probe stands before the innermost statement around the change. What is changed outside functions
runs when the module is imported, for whichever test comes first. There the probes stand at the head
of the functions that may read it: those of the definition around it, else all of the module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from benchmarks.mutants.mutations import Mutation
from benchmarks.mutants.source import Source

_PROBE = "__import__('benchmarks.mutants.probe', fromlist=['ran']).ran({})"
_BODIES = ("body", "orelse", "finalbody")
_Function = ast.FunctionDef | ast.AsyncFunctionDef
#: A list of statements, and the place in it of one of them.
_Place = tuple[list[ast.stmt], int]


def probed(text: str, mutations: Mapping[int, Mutation]) -> tuple[str, set[int]]:
    """A module with probes, without its comments, and the numbers of the mutants that no probe
    stands for: they are outside functions in a module that has none.

    Args:
        text: The module.
        mutations: Its mutants by their numbers.
    """
    source = Source(text)
    found = {number: _places(source, mutation) for number, mutation in mutations.items()}
    probes: dict[int, tuple[list[ast.stmt], list[tuple[int, int]]]] = {}
    for number, places in found.items():
        for body, index in places:
            probes.setdefault(id(body), (body, []))[1].append((index, number))
    for body, inserted in probes.values():
        for index, number in sorted(inserted, reverse=True):
            body.insert(index, ast.parse(_PROBE.format(number)).body[0])
    return ast.unparse(source.tree) + "\n", {n for n, places in found.items() if not places}


def _places(source: Source, mutation: Mutation) -> list[_Place]:
    """The places of the probes of a mutant."""
    chain = list(_around(source, source.tree, mutation))
    statements = [body[index] for body, index in chain]
    if any(isinstance(statement, _Function) for statement in statements[:-1]):
        return chain[-1:]
    definitions = [each for each in statements if isinstance(each, _Function | ast.ClassDef)]
    nearest = _heads(definitions[-1]) if definitions else []
    return nearest or _heads(source.tree)


def _around(source: Source, node: ast.AST, mutation: Mutation) -> Iterator[_Place]:
    """The statements around a change, the outermost first."""
    for body in _bodies(node):
        for index, statement in enumerate(body):
            start, end = source.span(statement)
            if start <= mutation.start and mutation.end <= end:
                yield body, index
                yield from _around(source, statement, mutation)
                return


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The lists of statements right in a node, those of its handlers and cases among them."""
    for name in _BODIES:
        body = getattr(node, name, None)
        if isinstance(body, list):
            yield body
    for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
        yield part.body


def _heads(node: ast.AST) -> list[_Place]:
    """The places of the first statements of all functions in a node, after their docstrings."""
    functions = [each for each in ast.walk(node) if isinstance(each, _Function)]
    return [(each.body, int(ast.get_docstring(each) is not None)) for each in functions]
