"""Engines that are a means have plain code; those that are a subject, what users get."""

from __future__ import annotations

import json
from typing import Any

import pytest

from optc.backends.tvm.compiling.build import COMPILER
from optc.backends.tvm.isa import isa_of
from optc.backends.tvm.program import Program
from optc.system.hardware.target import known_targets
from tests.support.cost.plain import without_passes
from tests.support.cost.subject import engines_are_subject, with_passes

STRANGE = "tests.support.children.strange_compiler"


def level(target: str = "x86-64-v3") -> Any:
    """LLVM's level in a compile that this process asks for; None is its own."""
    program = Program(functions=(), bounds={}, target=target)
    request = {"program": program.to_json(), "engine": "/nowhere/level", "compiler": STRANGE}
    return COMPILER.run(json.dumps(request))["level"]


def test_a_means_is_plain() -> None:
    assert level() == 0


@pytest.mark.native
def test_a_subject_is_what_users_get() -> None:
    assert level() is None


def test_what_tests_run_for_long_has_passes() -> None:
    with with_passes():
        assert level() is None
        assert not engines_are_subject(), "for AVX2 all the same"
    assert level() == 0


def test_nothing_else_of_a_target_changes() -> None:
    whole = isa_of(known_targets()["x86-64-v4-vnni"]).tvm_target()
    said = {name: str(value) for name, value in without_passes(whole).export().items()}
    assert said.pop("opt-level") == "0"
    assert said == {name: str(value) for name, value in whole.export().items()}
