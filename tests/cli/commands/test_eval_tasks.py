"""``optc eval --tasks``: its options, and what it says where lm-eval is not there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from optc.proof.lm_eval import tasks
from tests.cli.conftest import Optc


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--limit", "3"), "--limit: this option goes only with --tasks"),
        (("--fewshot", "0"), "--fewshot: this option goes only with --tasks"),
        (("--chat",), "--chat: this option goes only with --tasks"),
        (("--tasks", "a", "--text", "x"), "--text: this option goes not with --tasks"),
        (("--tasks", "a", "--reference", "x"), "--reference: this option goes not with --tasks"),
        (("--tasks", ","), "--tasks: no task is named"),
        (("--tasks", "a", "--limit", "0"), "0 is not in the range"),
        (("--tasks", "a", "--task-folder", "nowhere"), "'nowhere' does not exist"),
    ],
)
def test_options_that_do_not_go_together(
    optc: Optc, talker: Path, options: tuple[str, ...], message: str
) -> None:
    found = optc("eval", talker, *options)
    assert found.code == 2
    assert message in found.err


def test_lm_eval_that_is_not_installed_is_one_message(
    optc: Optc, talker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval.evaluator", None)
    found = optc("eval", talker, "--tasks", "a")
    assert found.code == 3
    assert found.err.startswith("error: optc: the package 'lm_eval")
    assert "is not installed (pip install 'optc[eval]')" in found.err


def test_what_is_asked_reaches_lm_eval_and_results_are_shown(
    optc: Optc, talker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    results = {
        "a": {
            "metrics": {
                "acc": {"value": 0.25, "stderr": 0.0125},
                "f1": {"value": None, "stderr": None},
            },
            "documents": 8,
            "fewshot": 2,
            "version": 1.0,
        }
    }

    def fake(path: Path, wanted: tasks.WantedTasks, **serve: Any) -> dict[str, Any]:
        asked.append((path, wanted, serve))
        return results

    monkeypatch.setattr(tasks, "evaluate_tasks", fake)
    more = ("--task-folder", tmp_path, "--limit", "8", "--fewshot", "0", "--chat", "--threads", "1")
    call = ("eval", talker, "--tasks", "a,b", "--tasks", "c", *more)
    assert optc(*call, "--json").json["tasks"] == results
    path, wanted, serve = asked[0]
    assert path == talker
    assert wanted == tasks.WantedTasks(("a", "b", "c"), tmp_path, 8, 0, True)
    assert (serve["threads"], serve["engine"]) == (1, None)
    shown = " ".join(optc(*call).out.split())
    assert "a acc 0.25 0.0125 8" in shown
    assert "f1" in shown


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TQDM_DISABLE")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with tasks._quietly():
        assert os.environ["HF_HUB_OFFLINE"] == "0"
        assert os.environ["HF_DATASETS_OFFLINE"] == "1"
    assert [os.environ.get(name) for name in names] == ["0", None, None]
