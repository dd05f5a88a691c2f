"""Typed keywords of the public functions: the fields of their classes, seen by type checkers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from optc.runtime import params
from optc.runtime.beams.search import EarlyStopping
from optc.runtime.keywords import RequestTerms, SamplingChanges, ServeChanges
from optc.runtime.params import SamplingParams
from optc.runtime.requests.generation_request import GenerationRequest
from optc.runtime.settings import ServeSettings
from optc.system.options import PLANNED, CompileOptions
from optc.system.options.keywords import CompileChanges, PlanChanges

ROOT = Path(__file__).resolve().parents[3]


def _given(hint: Any) -> Any:
    """The types that may be given for a field: texts stand for paths, and one for a list of one."""
    if hint == Sequence[str]:
        return str | Sequence[str]
    if getattr(hint, "__args__", None) and Path in hint.__args__:
        return str | hint
    return hint


@pytest.mark.parametrize(
    ("kind", "keywords", "left_out"),
    [
        (ServeSettings, ServeChanges, ()),
        (GenerationRequest, RequestTerms, ("prompt", "params")),
        (CompileOptions, CompileChanges, ("recipe", "output")),
    ],
)
def test_keywords_are_the_fields_of_their_class(
    kind: type[Any], keywords: Any, left_out: tuple[str, ...]
) -> None:
    hints = get_type_hints(kind)
    expected = {f.name: _given(hints[f.name]) for f in fields(kind) if f.name not in left_out}
    assert get_type_hints(keywords) == expected


def test_keywords_are_sampling_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(params, "EarlyStopping", EarlyStopping, raising=False)
    hints = get_type_hints(SamplingParams)
    expected = {f.name: hints[f.name] for f in fields(SamplingParams)}
    assert get_type_hints(SamplingChanges) == expected


def test_keywords_of_a_plan_are_those_it_takes() -> None:
    assert {*get_type_hints(PlanChanges), "recipe"} == set(PLANNED)


SNIPPET = """
import optc
from optc.compiling.ladder.plan import plan_ladder

async def use(engine: optc.Engine, params: optc.SamplingParams) -> None:
    optc.load("a", max_sequences=4, draft="folder", verify="full")
    optc.load("a", max_sequence=4)  # wrong
    optc.load("a", max_sequences="4")  # wrong
    optc.compile("a", "int8", force=True, eval_text="text.jsonl")
    optc.compile("a", forced=True)  # wrong
    optc.plan("a", gate="kl_mean=1")
    optc.plan("a", gates="kl_mean=1")  # wrong
    plan_ladder("a", budgets="3bpw")  # wrong
    engine.submit("a", params, priority=1, deadline_s=2)
    engine.submit("a", params, deadline=2)  # wrong
    engine.generate(["a"], salts="a")  # wrong
    engine.chat([], prio=1)  # wrong
    await engine.asubmit("a", adaptor="sql")  # wrong
    engine.stream("a", salt=1)  # wrong
    params.changed(seed=1)
    params.changed(sead=1)  # wrong
    optc.SamplingParams(sead=1)  # wrong
"""


def test_a_type_checker_sees_misspelled_keywords(tmp_path: Path) -> None:
    lines = SNIPPET.splitlines()
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    # with the options and so with the cache of `make types`, where that was run
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", str(snippet)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {int(number) for number in re.findall(r"snippet\.py:(\d+): error", checked.stdout)}
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert found == wrong, checked.stdout + checked.stderr
