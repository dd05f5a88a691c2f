"""``optc compile --medusa``: what the manifest says of the heads, and who gets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from optc.artifact.artifact import Artifact
from tests.cli.conftest import Optc
from tests.support.drafts.heads import write_heads
from tests.support.stub import StubBackend

WIDTH = 32


def arguments(model: Path, heads: Path, output: Path) -> tuple[Any, ...]:
    return ("compile", model, "--medusa", heads, "-o", output, "--recipe", "fp32", "--no-gates")


def heads_in(folder: Path) -> Path:
    folder.mkdir(parents=True)
    write_heads(folder, 2, WIDTH)
    return folder


def test_copies_of_the_heads_give_the_same_manifest_and_other_heads_another(
    optc: Optc, stub: StubBackend, quick_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    copies = [heads_in(tmp_path / "one/heads"), heads_in(tmp_path / "second/place/renamed")]
    other = heads_in(tmp_path / "other")
    config = other / "config.json"
    config.write_text(config.read_text().replace("0.5", "0.25"))
    manifests = []
    for index, heads in enumerate((*copies, other)):
        output = tmp_path / f"out/{index}"
        assert optc(*arguments(tiny_model, heads, output)).code == 0
        manifests.append((output / "manifest.json").read_bytes())
    assert manifests[0] == manifests[1] != manifests[2]
    text = manifests[0].decode()
    assert "medusa-heads{sha256=" in text
    assert str(tmp_path) not in text
    assert "folder" not in Artifact.open(tmp_path / "out/0").manifest.pipeline


def test_a_draft_model_gets_no_heads(
    optc: Optc, stub: StubBackend, quick_import: None, tiny_model: Path, tmp_path: Path
) -> None:
    output, heads = tmp_path / "out", heads_in(tmp_path / "heads")
    assert optc(*arguments(tiny_model, heads, output), "--draft", tiny_model).code == 0
    report = Artifact.open(output).report()
    names = [
        [run["name"] for run in passes] for passes in (report["passes"], report["draft"]["passes"])
    ]
    assert ["medusa-heads" in passes for passes in names] == [True, False]


def test_a_missing_file_is_found_before_any_work(
    optc: Optc, stub: StubBackend, tiny_model: Path, tmp_path: Path
) -> None:
    heads = heads_in(tmp_path / "heads")
    for name in ("medusa_heads.safetensors", "config.json"):
        (heads / name).unlink()
        outcome = optc(*arguments(tiny_model, heads, tmp_path / "out"))
        assert outcome.code == 2
        assert f"{heads}: no {name} (train heads with" in outcome.err
    assert not stub.built
    assert not (tmp_path / "out").exists()
