"""Code of a model's folder runs for no command that was not allowed to, and nothing asks."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Optc
from tests.support.stub import StubBackend


@pytest.fixture
def evil(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny model with a tokenizer of its own code; somebody says yes to everything."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n" * 100))
    folder = shutil.copytree(tiny_model, tmp_path / "evil")
    trace = f"open({str(tmp_path / 'it ran')!r}, 'w').close()\n"
    (folder / "evil.py").write_text(f"{trace}class EvilTokenizer: pass\n")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    names = ["evil.EvilTokenizer", "evil.EvilTokenizer"]
    settings |= {"tokenizer_class": "EvilTokenizer", "auto_map": {"AutoTokenizer": names}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize(
    "command",
    [
        "compile EVIL -o OUT --recipe fp32 --no-gates",
        "compile TINY -o OUT --recipe fp32 --no-gates --draft EVIL",
        "plan EVIL --recipe fp32 --backends tvm",
        "eval ARTIFACT --reference EVIL",
    ],
)
def test_every_command_refuses_and_asks_nobody(
    command: str,
    optc: Optc,
    artifact: Path,
    evil: Path,
    tiny_model: Path,
    tmp_path: Path,
    stub: StubBackend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from optc.importer import import_model as importer
    from optc.importer.hugging_face import import_folder

    quick = importer.import_model

    def import_model(source: Path, *, allow_remote_code: bool = False) -> importer.ImportedModel:
        if source == evil:
            return import_folder(source, allow_remote_code=allow_remote_code)
        return quick(source)

    monkeypatch.setattr(importer, "import_model", import_model)
    places = {"EVIL": evil, "TINY": tiny_model, "OUT": tmp_path / "out", "ARTIFACT": artifact}
    outcome = optc(*(places.get(word, word) for word in command.split()))
    assert outcome.code == 2, outcome.err
    assert f"{evil / 'tokenizer_config.json'}: auto_map names Python code" in outcome.err
    assert "--allow-remote-code" in outcome.err
    assert not (tmp_path / "it ran").exists()
    assert not (tmp_path / "out").exists()
    assert sys.stdin.read() == "yes\n" * 100
