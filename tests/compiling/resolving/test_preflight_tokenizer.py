"""What a model without a tokenizer, or with a damaged one, rules out before it is imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from optc.compiling.recipes.recipe import load_recipe
from optc.compiling.resolving import preflight_tokenizer
from optc.compiling.resolving.preflight_tokenizer import check_tokenizer, without_tokenizer
from optc.compiling.resolving.tokenizer import VOCABULARIES
from optc.errors import InputError
from optc.importer import import_model as importer
from optc.system.options import CompileOptions
from tests.cli.conftest import Optc, optc, stub
from tests.support.stub import StubBackend

__all__ = ["optc", "stub"]


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a model without tokenizer, which must not be imported."""

    def import_model(source: Path, *, allow_remote_code: bool = False) -> None:
        raise AssertionError(f"{source} is imported")

    monkeypatch.setattr(importer, "import_model", import_model)
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_text("weights")
    return folder


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--eval-text", "TEXT"), "--eval-text: the model has no tokenizer.json to read a text"),
        (("--recipe", "int8-gptq", "--calibration", "TEXT"), "--calibration: the model has no"),
        (("--recipe", "vocab-trim-int4", "--calibration", "TEXT"), "has no tokenizer.json"),
        (("--self-draft", "auto"), "--self-draft auto: the model has no tokenizer.json"),
        (("--draft", "self:auto"), "--draft self:auto: the model has no tokenizer.json"),
    ],
)
def test_a_model_without_a_tokenizer(
    optc: Optc,
    stub: StubBackend,
    bare: Path,
    tmp_path: Path,
    options: tuple[str, ...],
    message: str,
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c")
    words = [str(text) if word == "TEXT" else word for word in options]
    done = optc("compile", bare, *words, "-o", tmp_path / "out")
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "out").exists()


def test_what_reads_no_text_needs_none(bare: Path) -> None:
    text = bare / "text.txt"
    asked = CompileOptions(no_gates=True, eval_text=text, calibration=text, self_draft=1)
    check_tokenizer(bare, asked, load_recipe("fp32"), ())
    check_tokenizer(bare / "absent", CompileOptions(eval_text=text), load_recipe("fp32"), ())


def of_model(**changed: object) -> str:
    """A tokenizer.json whose model has other values."""
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]], **changed}
    return json.dumps({"version": "1.0", "model": model})


@pytest.mark.parametrize("command", ["compile", "plan"])
@pytest.mark.parametrize(
    "content",
    [
        "{",
        "{}",
        of_model(merges=[["a", "zz"]]),
        of_model(merges=[["a"]]),
        of_model(merges=["a"]),
        of_model(merges=[3]),
        of_model(vocab=["a", "b", "ab"]),
        of_model(vocab={"a": "zero"}),
        of_model(type="Runes"),
        of_model(type="Unigram", vocab=[["a", "b"]]),
        of_model(type="Unigram", unk_id=9, vocab=[["a", 0.0]]),
        json.dumps({**json.loads(of_model()), "added_tokens": [{"id": -3}]}),
        json.dumps({**json.loads(of_model()), "pre_tokenizer": {"type": "Knife"}}),
    ],
)
def test_a_damaged_tokenizer_is_an_error_before_anything_is_imported(
    command: str, content: str, optc: Optc, stub: StubBackend, bare: Path, tmp_path: Path
) -> None:
    (bare / "tokenizer.json").write_text(content)
    output = ("-o", tmp_path / "out") if command == "compile" else ()
    done = optc(command, bare, *output)
    assert (done.code, done.out) == (2, "")
    assert f"{bare / 'tokenizer.json'}: " in done.err
    assert not (tmp_path / "out").exists()


def test_a_file_is_read_once_until_it_changes(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    read = preflight_tokenizer.read_object

    def counting(file: Path, **how: bool) -> dict[str, Any]:
        seen.append(file.name)
        return read(file, **how)

    monkeypatch.setattr(preflight_tokenizer, "read_object", counting)
    (bare / "tokenizer.json").write_text(Tokenizer(BPE()).to_str())
    for name in ("fp32", "int8-fused", "int4-fused"):
        check_tokenizer(bare, CompileOptions(), load_recipe(name), ())
    assert seen == ["tokenizer.json"]
    (bare / "tokenizer.json").write_text("{]")
    with pytest.raises(InputError, match="not readable as JSON"):
        check_tokenizer(bare, CompileOptions(), load_recipe("fp32"), ())


def test_training(optc: Optc, bare: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c")
    done = optc("distill", bare, "--text", text, "-o", tmp_path / "out")
    assert done.code == 2
    assert "no tokenizer.json to read a text with (give a model with a tokenizer)" in done.err


@pytest.mark.parametrize("name", [*sorted(VOCABULARIES), "tokenizer_config.json", ""])
def test_a_model_without_a_tokenizer_is_a_warning(tmp_path: Path, name: str) -> None:
    if name:
        (tmp_path / name).touch()
    assert bool(without_tokenizer(tmp_path)) == (name not in VOCABULARIES)
