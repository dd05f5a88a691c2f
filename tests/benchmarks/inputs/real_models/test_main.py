"""The command that fetches a real model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.inputs.real_models import __main__ as command
from benchmarks.inputs.real_models.catalogue import model_of


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["real_models", *arguments])
    return command.main()


def test_an_unknown_name_ends_with_the_code_of_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(monkeypatch, "gpt-9", str(tmp_path / "model")) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: gpt-9: no such real model")
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []


def test_floats_are_of_gguf_files_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert call(monkeypatch, "magika", str(tmp_path / "model"), "--float") == 2
    assert "magika: the model is no GGUF file" in capsys.readouterr().err


def test_licence_and_note_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "real_model", lambda _, folder: folder)
    assert call(monkeypatch, "smollm2-135m-instruct", str(tmp_path)) == 0
    model = model_of("smollm2-135m-instruct")
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}: smollm2-135m-instruct, licence Apache-2.0",
        f"note: {model.note}",
    ]
