"""Engines take turns over the prompts of a text, and a changed text is noticed; nothing is run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.serving import speculation
from benchmarks.serving.speculation import PLAIN, in_turns, listed, summary

OPTIONS = argparse.Namespace(
    artifact=Path("grown"),
    corpus=speculation.TEXT,
    prompts=3,
    batch=1,
    rounds=1,
    tokens=8,
    temperature=0.0,
)


def engines(*names: str) -> dict[str, Any]:
    """As much of them as is asked for here."""
    return {name: SimpleNamespace(name=name, spec=SimpleNamespace(vocab_size=9)) for name in names}


def decoded(seconds: float, ids: int = 1) -> dict[str, Any]:
    return {
        "ids": [[ids]],
        "tokens": 8,
        "seconds": seconds,
        "drafted": 4,
        "accepted": 1,
        "steps": 8,
    }


def test_all_engines_decode_each_batch_and_another_one_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []

    def decode(engine: Any, batch: list[Any], params: list[Any]) -> dict[str, Any]:
        order.append(engine.name)
        return decoded({PLAIN: 3.0}.get(engine.name, 1.0))

    monkeypatch.setattr(speculation, "decode", decode)
    rounds = list(in_turns(OPTIONS, "edits", engines(PLAIN, "a", "b")))
    assert order == [PLAIN, "a", "b", "a", "b", PLAIN, "b", PLAIN, "a"]
    assert [set(results) for results in rounds] == [{PLAIN, "a", "b"}] * 3
    result = summary(OPTIONS, "a", "edits", [(one[PLAIN], one["a"]) for one in rounds])
    assert (result["speculate"], result["text"]) == ("a", "edits")
    assert result["speedup_median"] == 3.0
    assert result["acceptance"] == 0.25


def test_a_text_that_drafts_changed_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        speculation, "decode", lambda engine, *_: decoded(1.0, int(engine.name == "b"))
    )
    with pytest.raises(AssertionError, match="speculation changed the text"):
        list(in_turns(OPTIONS, "code", engines(PLAIN, "a", "b")))


def test_wrong_texts_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed("draft,eagle,draft") == ["draft", "eagle"]
    monkeypatch.setattr(sys, "argv", ["speculation", "grown", "--text", "edits,prose"])
    with pytest.raises(SystemExit):
        speculation.main()
    assert "no text is called 'prose': there are edits, code, noise" in capsys.readouterr().err
