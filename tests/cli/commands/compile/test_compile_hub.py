"""Names of the Hub for all that a compile takes beside its model, and for what trains."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from optc import registry
from optc.artifact.artifact import Artifact
from tests.cli.commands.compile.test_compile_eagle import SHAPES, HiddenStub
from tests.cli.conftest import Optc
from tests.importer.hub_server import hub
from tests.support.drafts.heads import write_heads, write_tensors
from tests.support.stub import StubBackend

FIXED = ("--recipe", "fp32", "--no-gates")
TRAINING = ("--tokens", "32", "--window", "16", "--batch", "1", "--threads", "1")


def test_a_draft_model(
    optc: Optc, stub: StubBackend, quick_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a"
    with hub(tiny_model, tmp_path / "cache", small=tiny_model) as server:
        done = optc("compile", tiny_model, "--draft", "acme/small@v1", *FIXED, "-o", out)
        assert done.code == 0, done.err
        assert "model.safetensors" in server.taken
        assert "README.md" not in server.taken
        wrong = optc("compile", tiny_model, "--draft", "acme/none", *FIXED, "-o", tmp_path / "b")
    assert [engine.role for engine in Artifact.open(out).manifest.engines] == ["target", "draft"]
    assert wrong.code == 2
    assert "acme/none: no such model folder, and no such model on the Hugging" in wrong.err


def test_a_draft_that_is_wrong_is_seen_before_weights_are_downloaded(
    optc: Optc, stub: StubBackend, no_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    with hub(tiny_model, tmp_path / "cache") as server:
        wrong = ("--draft", "acme/none")
        assert optc("compile", "acme/tiny", *wrong, *FIXED, "-o", tmp_path / "a").code == 2
        assert "model.safetensors" not in server.taken


def test_heads_and_layers(
    optc: Optc,
    stub: StubBackend,
    quick_import: None,
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = HiddenStub()
    monkeypatch.setattr(registry, "backend", lambda name: backend)
    heads, layer = tmp_path / "heads", tmp_path / "layer"
    heads.mkdir()
    write_heads(heads, 2, 32)
    write_tensors(layer, SHAPES, 3)
    (heads / "README.md").write_text("heads")
    with hub(tiny_model, tmp_path / "cache", heads=heads, layer=layer) as server:
        for option, folder in (("--medusa", heads), ("--eagle", layer)):
            texts = []
            for given in (folder, f"acme/{folder.name}"):
                out = tmp_path / f"{option}-{len(texts)}"
                done = optc("compile", tiny_model, option, given, *FIXED, "-o", out)
                assert done.code == 0, done.err
                texts.append((out / "manifest.json").read_text())
            assert texts[0] == texts[1]
        assert sorted(server.taken) == [
            *["config.json"] * 2,
            "eagle.safetensors",
            "medusa_heads.safetensors",
        ]
        wrong = optc("plan", tiny_model, "--medusa", "acme/layer", "--recipe", "fp32")
    assert wrong.code == 2
    assert "no medusa_heads.safetensors" in wrong.err


def test_training_by_names_and_a_compile_of_it(
    optc: Optc, stub: StubBackend, quick_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    text, made, shared = tmp_path / "pool.txt", tmp_path / "made", tmp_path / "shared"
    text.write_text("def f(x):\n    return x + 1\n" * 40)
    shared.mkdir()
    with hub(tiny_model, tmp_path / "cache", teacher=tiny_model, shared=shared) as server:
        names = ("acme/tiny", "--teacher", "acme/teacher")
        done = optc("distill", *names, "--text", text, "-o", made, *TRAINING)
        assert done.code == 0, done.err
        assert server.taken.count("model.safetensors") == 2
        shutil.copytree(made, shared, dirs_exist_ok=True)
        compiled = optc("compile", tiny_model, "--trained", "acme/shared", *FIXED, "-o", made / "a")
        assert compiled.code == 0, compiled.err
        wrong = optc("qat", "acme/none", "--recipe", "int4-fast", "--text", text, *TRAINING)
    assert wrong.code == 2
    assert "no such model on the Hugging Face Hub" in wrong.err
