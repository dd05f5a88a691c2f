"""README.md and docs/runtime.md: their Python runs as it stands there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import optc
from optc import registry
from optc.runtime.engine import Engine
from tests.runtime.support.artifacts import ToyBackend, write_artifact

ROOT = Path(__file__).parents[2]
#: Beginnings of calls in running text.
CALLS = ("optc.load(path", "optc.SamplingParams(", "SamplingParams(", "engine.submit(prompt")
#: What the toy artifact has not: models and layers that draft, heads, adapters, engines, places.
LACKING = ("draft", "eagle", "medusa", "self", "adapter", "engine", "prefix_spill")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a user is who compiled something into artifacts/model."""
    monkeypatch.setattr(registry, "backend", {"toy": ToyBackend()}.__getitem__)
    write_artifact(tmp_path / "artifacts/model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def calls(page: str) -> list[str]:
    """Whole calls in the running text of a page."""
    spans = re.findall(r"`([^`\n]+)`", (ROOT / page).read_text(encoding="utf-8"))
    return [span for span in spans if span.startswith(CALLS) and _is_whole(span)]


def _is_whole(span: str) -> bool:
    try:
        call = ast.parse(span, mode="eval").body
    except SyntaxError:  # names of options without values
        return False
    assert isinstance(call, ast.Call)
    words = [k.arg for k in call.keywords]
    words += [node.value for node in ast.walk(call) if isinstance(node, ast.Constant)]
    return "..." not in span and not set(map(str, words)) & set(LACKING)


@pytest.mark.parametrize("page", ["README.md", "docs/runtime.md"])
def test_blocks_run_as_they_stand(page: str, folder: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        names: dict[str, Any] = {"optc": optc}
        exec(compile(block, page, "exec"), names)
        if "engine" in names:
            names["engine"].close()


def test_calls_in_the_text_are_possible(folder: Path) -> None:
    path = folder / "artifacts/model"
    found = calls("docs/runtime.md")
    assert len(found) >= 7
    with optc.load(path) as engine:
        scope = {"optc": optc, "SamplingParams": optc.SamplingParams, "path": path}
        for call in found:
            made = eval(call, {**scope, "engine": engine, "prompt": "hi"})
            if isinstance(made, Engine):
                made.close()
