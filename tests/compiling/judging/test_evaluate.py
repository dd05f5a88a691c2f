"""Scoring an artifact: what is loaded, with what, and that it is closed."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from optc import registry
from optc.artifact.artifact import Artifact
from optc.compiling.judging import evaluate
from optc.compiling.judging.evaluate import evaluate_artifact
from optc.errors import InputError
from optc.proof.reference.text import EvalWindows
from optc.runtime.executable.executable import Executable
from optc.system.hardware.target import Target, usable_threads
from tests.runtime.support.artifacts import ToyBackend, write_artifact
from tests.support.chats import PLAIN
from tests.support.models import Dense, dense_model


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ToyBackend:
    made = ToyBackend()
    monkeypatch.setattr(registry, "backend", lambda name: made)
    return made


@pytest.fixture
def artifact(tmp_path: Path, backend: ToyBackend) -> Artifact:
    targets = (Target("any", "cpu"), Target("other", "cpu"))
    return write_artifact(tmp_path / "a", targets=targets)


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[tuple[EvalWindows, dict[str, Any]]]:
    """What would be scored."""
    calls: list[tuple[EvalWindows, dict[str, Any]]] = []

    def fake(executable: Executable, windows: EvalWindows, **options: Any) -> dict[str, Any]:
        calls.append((windows, options))
        return {"perplexity": 7.0}

    monkeypatch.setattr(evaluate, "evaluate", fake)
    return calls


def test_the_named_engine_scores_the_text(
    artifact: Artifact,
    backend: ToyBackend,
    scored: list[tuple[EvalWindows, dict[str, Any]]],
    tmp_path: Path,
) -> None:
    text = tmp_path / "t.txt"
    text.write_text("ab" * 50)
    found = evaluate_artifact(artifact, text=text, threads=3, engine="target-other")
    assert (found.figures, found.warnings) == ({"perplexity": 7.0}, ())
    ((folder, data, threads),) = backend.calls
    assert folder == artifact.path / "engines/target-other"
    assert (data, threads) == ({"seed": 0}, 3)
    ((windows, options),) = scored
    assert (options["reference_model"], options["threads"]) == (None, 3)
    assert windows.source == "t.txt"
    assert windows.ids[0, 0] == 0, "documents begin with BOS"
    assert windows.ids[-1, -1] == 1, "and end with EOS"
    assert backend.loaded[0].closed


def test_all_threads_and_the_shipped_text_unless_told(
    artifact: Artifact, backend: ToyBackend, scored: list[tuple[EvalWindows, dict[str, Any]]]
) -> None:
    evaluate_artifact(artifact)
    assert backend.calls[0][2] == scored[0][1]["threads"] == usable_threads()
    assert scored[0][0].source == "shipped default text"
    assert scored[0][0].ids.shape[1] - 1 == 128, "the engine's context"


def test_the_engine_is_closed_when_scoring_fails(
    artifact: Artifact, backend: ToyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InputError("no")

    monkeypatch.setattr(evaluate, "evaluate", fail)
    with pytest.raises(InputError, match="no"):
        evaluate_artifact(artifact)
    assert backend.loaded[0].closed


def test_nothing_is_loaded_for_a_text_that_is_not_there(
    artifact: Artifact, backend: ToyBackend, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="cannot read the text"):
        evaluate_artifact(artifact, text=tmp_path / "absent")
    with pytest.raises(InputError, match="target-any"):
        evaluate_artifact(artifact, engine="third")
    assert backend.calls == []


def test_conversations_are_scored_beside_a_text(
    tmp_path: Path, backend: ToyBackend, scored: list[tuple[EvalWindows, dict[str, Any]]]
) -> None:
    template = PLAIN.replace("<|im_end|>", "</s>")
    made = write_artifact(tmp_path / "b", chat_template=template)
    talk = {"messages": [{"role": r, "content": "hi"} for r in ("user", "assistant")]}
    text = tmp_path / "t.jsonl"
    text.write_text(json.dumps(talk))
    alone = evaluate_artifact(made, text=text).figures
    assert scored == [], "there is no prose"
    assert (alone["tokens"], alone["text"]) == (3, "t.jsonl")
    assert alone["answers"] == {k: v for k, v in alone.items() if k != "answers"}
    text.write_text(json.dumps(talk) + "\n" + json.dumps({"text": "a" * 200}))
    both = evaluate_artifact(made, text=text).figures
    assert both["perplexity"] == 7.0, "of the prose"
    assert both["answers"] == alone["answers"]
    assert all(one.closed for one in backend.loaded)


def test_a_reference_shows_how_answers_and_decisions_differ(
    tmp_path: Path, backend: ToyBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = PLAIN.replace("<|im_end|>", "</s>")
    made = write_artifact(tmp_path / "b", chat_template=template)
    vocabulary = made.manifest.engines[0].spec.vocab_size
    model = SimpleNamespace(
        model=dense_model(Dense(vocab=vocabulary, windows=(0,))), source_digest="ab" * 32
    )
    monkeypatch.setattr(evaluate, "import_reference", lambda *_, **__: model)
    talk = {"messages": [{"role": r, "content": "hi"} for r in ("user", "assistant")]}
    text = tmp_path / "t.jsonl"
    text.write_text(json.dumps(talk))
    found = evaluate_artifact(made, text=text, reference=tmp_path).figures["answers"]
    assert found["kl_mean"] > 0
    assert found["decisions"]["count"] == 2


def _touched(file: Path, *_: object, **__: object) -> dict[str, Any]:
    os.utime(file)
    return {}


def test_what_changes_while_it_is_scored_is_told(
    artifact: Artifact, backend: ToyBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, model = tmp_path / "t.txt", tmp_path / "m"
    model.mkdir()
    text.write_text("ab" * 50)
    (model / "model.safetensors").write_bytes(b"a")
    given = SimpleNamespace(model=None, source_digest="ab" * 32, name="m")
    monkeypatch.setattr(evaluate, "import_reference", lambda *_, **__: given)
    for changed in (text, model / "model.safetensors"):
        slow = partial(_touched, changed)
        monkeypatch.setattr(evaluate, "evaluate", slow)
        with pytest.raises(InputError, match=f"{changed.name}: changed while it was being read"):
            evaluate_artifact(artifact, text=text, reference=model)
