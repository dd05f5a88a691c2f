"""docs/how-to/set-options.md: its commands and its Python run as they stand."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from optc import registry
from tests.cli.conftest import Optc
from tests.how_to.support.console import run_page
from tests.support.stub import StubBackend


@pytest.fixture
def kept_log() -> Iterator[None]:
    """The page's Python changes what the program logs; undone here."""
    roots = [logging.getLogger(), logging.getLogger("optc")]
    kept = [(root, root.handlers[:], root.level) for root in roots]
    yield
    for root, handlers, level in kept:
        root.handlers[:] = handlers
        root.setLevel(level)


def test_the_page_runs(
    optc: Optc,
    long_talker: Path,
    quick_import: None,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept_log: None,
) -> None:
    (long_talker / "tiny").symlink_to(tiny_model)
    toy, stub = registry.backend("toy"), StubBackend()
    found = {"toy": toy, "tvm": stub}
    monkeypatch.setattr(registry, "backend_names", lambda: tuple(found))
    monkeypatch.setattr(registry, "backend", found.__getitem__)
    assert run_page("set-options", optc, long_talker, monkeypatch) == 10
    assert [options.max_context for _, options in stub.built] == [32, 48]
    lines = (long_talker / "optc.log").read_text("utf-8").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} [A-Z]+ optc\.", x) for x in lines)
    assert "INFO optc.runtime.loader: loaded <optc.Engine" in lines[0]
    assert "DEBUG optc.runtime.submitting.input_processor: a request of 9 tokens" in lines[1]
    assert "ERROR optc.cli: absent: no such artifact" in lines[-1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_by_the_line_of_the_page(shell: str, tmp_path: Path) -> None:
    """The line is run in the shell, which then knows how to complete `optc`."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    page = Path("docs/how-to/set-options.md").read_text("utf-8")
    line = next(x for x in page.splitlines() if f"={shell}_source optc" in x)
    asked = {
        "bash": "complete -p optc",
        "zsh": "print -r -- $_comps[optc]",
        "fish": "complete --command optc",
    }[shell]
    # In zsh, completions are registered once its own system is loaded.
    before = {"zsh": "autoload -Uz compinit && compinit -D\n"}.get(shell, "")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        [found, "-c", f"{before}{line}\n{asked}"],
        env={**os.environ, "PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "_optc_completion" in result.stdout, result.stderr
