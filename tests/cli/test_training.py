"""``optc distill`` and ``optc qat``, and a compile of what they leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Optc
from tests.support.stub import StubBackend

OPTIONS = ("--tokens", "96", "--window", "16", "--batch", "2", "--threads", "1")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "pool.txt"
    path.write_text("def f(x):\n    return x + 1\n" * 40)
    return path


def test_rounded_weights_are_compiled_with_their_digest(
    optc: Optc, stub: StubBackend, quick_import: None, tiny_model: Path, tmp_path: Path, text: Path
) -> None:
    out = tmp_path / "trained"
    recipe = ("--recipe", "int4-fast")
    done = optc("qat", tiny_model, *recipe, "--text", text, "-o", out, *OPTIONS)
    assert done.code == 0
    assert "(for --trained): KL" in done.out
    assert "· qat: held-out KL" in done.err
    compiled = optc(
        *("compile", tiny_model, *recipe, "--trained", out, "-o", tmp_path / "a", "--no-gates")
    )
    assert compiled.code == 0
    manifest = (tmp_path / "a/manifest.json").read_text()
    assert "trained-weights{sha256=" in manifest
    assert str(out) not in manifest
    passes = json.loads((tmp_path / "a/report.json").read_text())["passes"]
    (taken,) = [one for one in passes if one["name"] == "trained-weights"]
    assert taken["facts"]["kind"] == "qat"
    other = optc("compile", tiny_model, "--trained", out, "-o", tmp_path / "b", "--no-gates")
    assert other.code == 2
    assert "was trained as int6 groups of 32 asymmetric, integer" in other.err


def test_a_model_that_is_trained_as_it_is(
    optc: Optc, quick_import: None, tiny_model: Path, tmp_path: Path, text: Path
) -> None:
    out = tmp_path / "trained"
    call = ("distill", tiny_model, "--text", text, "-o", out, *OPTIONS)
    done = optc(*call)
    assert done.code == 0
    assert "(a Hugging Face folder): KL" in done.out
    assert "training gained nothing" in done.err
    again = optc(*call)
    assert again.code == 2
    assert "there is something already (take another folder, or --force)" in again.err
    assert optc(*call, "--force").code == 0


def test_what_no_draft_of_the_first_layers_can_have(
    optc: Optc, stub: StubBackend, no_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    refused = optc("compile", tiny_model, "--trained", tmp_path, "--self-draft", "1")
    assert refused.code == 2
    assert "a draft of the first layers would not have the trained weights" in refused.err
    missing = optc("compile", tiny_model, "--trained", tmp_path)
    assert missing.code == 2
    assert "no training.json (give a folder that optc distill or optc qat wrote)" in missing.err
