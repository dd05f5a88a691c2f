"""Engines for this machine are those of AVX2, unless a test says ``native``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from optc.backend import BuildOptions
from optc.backends.tvm import BACKEND
from optc.system.hardware.target import Target, host_features, known_targets, parse_target
from tests.support.cost.narrow import NARROW, narrowed

OPTIONS = BuildOptions(max_context=1, max_rows=1, max_sequences=1, max_logit_rows=1)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Target]:
    """Targets that engines were built for."""
    found: list[Target] = []
    for name, place in (("build", 1), ("build_encoder", 2)):
        module = f"optc.backends.tvm.compiling.{name}"
        function = f"{module}.{'build_engine' if name == 'build' else name}"
        monkeypatch.setattr(function, lambda *given, at=place: found.append(given[at]))
    return found


def build(target: str) -> None:
    given: Any = None
    BACKEND.build(given, parse_target(target), Path(), OPTIONS)
    BACKEND.build_tensors(given, given, parse_target(target), Path())


def test_a_means_is_narrow(built: list[Target]) -> None:
    build("native")
    narrow = known_targets()[NARROW]
    here = parse_target("native").features
    expected = here if narrow.missing_on(host_features()) else narrow.features
    assert [(one.name, one.features) for one in built] == [("native", expected)] * 2


def test_a_named_target_is_what_it_says(built: list[Target]) -> None:
    build("x86-64-v4-vnni")
    assert built == [known_targets()["x86-64-v4-vnni"]] * 2


@pytest.mark.native
def test_a_subject_is_what_the_machine_has(built: list[Target]) -> None:
    build("native")
    assert built == [parse_target("native")] * 2


def test_another_processor_has_no_narrower_one() -> None:
    arm = known_targets()["aarch64-i8mm"]
    assert narrowed(arm) == arm
