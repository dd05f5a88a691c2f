"""A test notices a mutant if it passes alone without it, and does not with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import pytest

from benchmarks.mutants.mutations import Mutation, find_mutations
from benchmarks.mutants.server import Answer
from benchmarks.mutants.trials import Copy, ask

(MUTATION, *_) = find_mutations("m.py", "x = 3\n")
PASSED, FAILED, ENDLESS = "passed", "failed", "timeout"


class Tree:
    """A copy whose tests end as they are told to.

    Args:
        mutated: By test how it ends with the mutant; others pass.
        unmutated: The same without it.
        in_company: The same with the mutant, where it is not alone.
    """

    def __init__(
        self,
        mutated: dict[str, str],
        unmutated: dict[str, str] | None = None,
        in_company: dict[str, str] | None = None,
    ) -> None:
        self._ends = {True: mutated, False: unmutated or {}}
        self._in_company = in_company or {}
        self._changed = False
        self.asked: list[tuple[bool, list[str]]] = []

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        assert mutation == MUTATION
        self._changed = True
        yield
        self._changed = False

    def run(self, tests: Sequence[str], timeout_s: float) -> Answer:
        self.asked.append((self._changed, list(tests)))
        ends = self._ends[self._changed] | (self._in_company if len(tests) > 1 else {})
        for passed, test in enumerate(tests):
            if (outcome := ends.get(test, PASSED)) != PASSED:
                return Answer(outcome=outcome, passed=passed, by=test, seconds=1.0)
        return Answer(outcome=PASSED, passed=len(tests), by="", seconds=1.0)


def asked(tree: Tree, tests: str) -> tuple[str, int, str]:
    answer = ask(cast(Copy, tree), MUTATION, list(tests), 60.0)
    return answer["outcome"], answer["passed"], answer["by"]


@pytest.mark.parametrize("outcome", [FAILED, ENDLESS])
def test_a_test_that_passes_without_the_mutant_notices_it(outcome: str) -> None:
    tree = Tree({"b": outcome})
    assert asked(tree, "abc") == (outcome, 0, "b")
    assert tree.asked == [(True, ["a", "b", "c"]), (False, ["b"]), (True, ["b"])]


@pytest.mark.parametrize("outcome", [FAILED, ENDLESS])
def test_one_that_fails_anyway_says_nothing(outcome: str) -> None:
    tree = Tree({"b": FAILED}, {"b": outcome})
    assert asked(tree, "abc") == (PASSED, 2, "")
    assert tree.asked[-1] == (True, ["c"])


@pytest.mark.parametrize("outcome", [FAILED, ENDLESS])
def test_one_that_does_so_in_company_only_says_nothing(outcome: str) -> None:
    assert asked(Tree({}, in_company={"b": outcome}), "abc") == (PASSED, 3, "")


def test_the_others_are_asked_after_one_that_says_nothing() -> None:
    assert asked(Tree({"b": FAILED, "c": FAILED}, {"b": FAILED}), "abc") == (FAILED, 0, "c")


def test_none_is_asked_after_the_budget() -> None:
    tree = Tree({"a": ENDLESS}, {"a": ENDLESS})
    answer = ask(cast(Copy, tree), MUTATION, ["a", "b"], 0.0)
    assert (answer["outcome"], answer["passed"], tree.asked) == (PASSED, 0, [])
