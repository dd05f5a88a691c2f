"""optc export."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from optc import registry
from tests.cli.conftest import Optc
from tests.cli.test_docs import check, spelled
from tests.compiling.export.conftest import Made, kinds
from tests.runtime.support.artifacts import ToyBackend

__all__ = ["kinds"]


@pytest.fixture
def artifact(kinds: dict[str, Made], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(registry, "backend", {"toy": kinds["qwen2"].backend}.__getitem__)
    monkeypatch.chdir(tmp_path)
    return kinds["qwen2"].artifact.path


def test_both_formats(optc: Optc, artifact: Path) -> None:
    done = optc("export", artifact, "--format", "gguf")
    assert done.code == 0
    assert done.out.startswith("artifact.gguf: ")
    assert "15 tensors: 6 F32, 9 Q8_0" in done.out
    assert "9 tensors in Q8_0 have the engine's integers, and scales rounded to float16" in done.err
    done = optc("export", artifact, "--format", "compressed-tensors", "-o", "out")
    assert (done.code, done.err) == (0, "")
    assert "int8 per channel" in done.out
    assert Path("out/tokenizer.json").is_file()
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["artifact.gguf", "out"]


def test_json(optc: Optc, artifact: Path) -> None:
    value = optc("export", artifact, "--format", "gguf", "-o", "m.gguf", "--json").json
    assert value["bytes"] == Path("m.gguf").stat().st_size
    assert list(value["relative_errors"]) == ["Q8_0"]
    assert len(value["warnings"]) == 1
    # names of types are keys, too
    found = {**spelled(value), "tensors": [], "relative_errors": []}
    check("export", [found])


def test_exit_codes(optc: Optc, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("m.gguf").touch()
    call = ("export", artifact, "--format", "gguf", "-o")
    for output, code, message in (
        ("m.gguf", 2, "error: --output: m.gguf is there already"),
        ("m", 2, "does not end in .gguf"),
    ):
        done = optc(*call, output)
        assert (done.code, message in done.err) == (code, True), done.err
    assert optc("export", artifact).code == 2
    assert optc("export", "nothing", "--format", "gguf").code != 0
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "gguf", None)
        done = optc(*call, "n.gguf")
        assert 'pip install "optc[gguf]"' in done.err
        assert done.code != 0
    monkeypatch.setattr(registry, "backend", {"toy": ToyBackend()}.__getitem__)
    done = optc(*call, "n.gguf")
    assert "engines of the backend toy do not give their weights back" in done.err
    assert done.code == 2
    assert not Path("n.gguf").exists()
