"""Hints for words that are not known."""

from __future__ import annotations

from optc.system.suggest import near, nearest

KNOWN = ["compile", "plan", "run"]


def test_the_nearest_word() -> None:
    assert nearest("comple", KNOWN) == "compile"
    assert nearest("rnu", KNOWN) == "run"
    assert nearest("xyzzy", KNOWN) is None
    assert nearest("run", []) is None


def test_the_nearest_word_or_all_of_them() -> None:
    assert near("plna", KNOWN) == "did you mean 'plan'?"
    assert near("xyzzy", KNOWN) == "one of compile, plan, run"


def test_a_name_that_was_begun_is_ended() -> None:
    recipes = ["int4-fast", "int4-fused", "int8-fused", "kv-int4"]
    assert near("int4", recipes) == "did you mean 'int4-fast' or 'int4-fused'?"
    assert near("int8", recipes) == "did you mean 'int8-fused'?"
    assert near("in", ["int4", "run"]) == "did you mean 'int4'?"
    assert near("", recipes).startswith("one of ")
