"""docs/how-to/score-tasks.md: what it shows runs; its tasks do in tests/proof/lm_eval."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from optc.proof.lm_eval.model_options import ModelOptions
from tests.cli.conftest import Optc
from tests.how_to import PAGES
from tests.how_to.support.console import run_page


def test_the_page_runs(optc: Optc, long_talker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lm_eval", reason="lm-eval is not installed (pip install 'optc[eval]')")
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TQDM_DISABLE"):
        monkeypatch.setenv(name, "1")
    assert run_page("score-tasks", optc, long_talker, monkeypatch) == 2


def test_the_page_names_every_argument() -> None:
    page = (PAGES / "score-tasks.md").read_text("utf-8")
    table = page.partition("| argument |")[2].partition("\n\n")[0]
    first = " ".join(line.split("|")[1] for line in table.splitlines()[2:])
    assert set(re.findall(r"`(\w+)`", first)) == {"path", *(f.name for f in fields(ModelOptions))}
