"""A recipe with ``vocab-trim``: fewer tokens in engine, tokenizer and manifest; refusals."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import tokenizers

from optc import registry
from optc.artifact.artifact import Artifact
from optc.backend import BuildOptions, EngineBuild
from optc.importer import import_model as importer
from optc.importer.imported import ImportedModel
from optc.ir.graph import width
from optc.proof.reference.blockwise import BlockwiseReference
from optc.runtime.executable.executable import Executable, StepInterface
from optc.system.hardware.target import Target
from tests.cli.conftest import Optc, nothing_left
from tests.compiling.vocabulary.trained import DOMAIN, HELDOUT, byte_level
from tests.runtime.support.toy import ToyExecutable, toy_spec
from tests.support.stub import StubBackend, write_tiny_model

RECIPE = """name: trimmed
backend: tvm
pipeline: [canonicalize, vocab-trim, kv-cache]
gates: {kl_mean: 1.0}
"""


class Wide(StubBackend):
    """Engines with as many tokens as the model has."""

    def build(
        self, model: ir.Model, target: Target, workdir: Path, options: BuildOptions
    ) -> EngineBuild:
        made = super().build(model, target, workdir, options)
        tokens = width(model.graph.outputs[0])
        assert tokens is not None
        return dataclasses.replace(made, spec=toy_spec(max_context=64, vocab=tokens))

    def load(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Executable:
        return ToyExecutable(spec)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose tokenizer has merges."""
    folder = write_tiny_model(tmp_path_factory.mktemp("models") / "merged", vocab=720)
    (folder / "tokenizer.json").write_text(byte_level())
    return folder


@pytest.fixture(scope="module")
def imported_model(model: Path) -> ImportedModel:
    return importer.import_model(model)


@pytest.fixture
def compile_trimmed(
    optc: Optc,
    model: Path,
    imported_model: ImportedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Optc:
    """Compiles the model into ``tmp_path/out/a`` by a recipe that trims it to the domain."""
    backend = Wide()

    def import_model(source: Path, *, allow_remote_code: bool = False) -> ImportedModel:
        return dataclasses.replace(imported_model, model=imported_model.model.clone())

    monkeypatch.setattr(importer, "import_model", import_model)
    monkeypatch.setattr(registry, "backend_names", lambda: ("tvm",))
    monkeypatch.setattr(registry, "backend", lambda name: backend)
    recipe = tmp_path / "trimmed.yaml"
    recipe.write_text(RECIPE)
    (tmp_path / "domain.txt").write_text(DOMAIN)
    (tmp_path / "heldout.txt").write_text(HELDOUT)

    def call(*more: object, text: bool = True) -> Any:
        read = ("--calibration", tmp_path / "domain.txt") if text else ()
        output = ("-o", tmp_path / "out/a", "--eval-text", tmp_path / "heldout.txt")
        return optc("compile", model, "--recipe", recipe, *read, *output, *more)

    return call


def test_engine_tokenizer_and_manifest_have_the_tokens_that_stay(
    optc: Optc, compile_trimmed: Optc, measured: list[Any], model: Path, tmp_path: Path
) -> None:
    outcome = compile_trimmed("--json")
    assert outcome.code == 0, outcome.err
    assert not [text for text in outcome.json["warnings"] if "not used" in text]
    artifact = Artifact.open(tmp_path / "out/a")
    entry, (engine,) = artifact.manifest.tokenizer, artifact.manifest.engines
    assert entry is not None
    folder = artifact.path / "tokenizer"
    kept = json.loads((folder / "kept_ids.json").read_text())
    after = tokenizers.Tokenizer.from_str((folder / "tokenizer.json").read_text())
    before = tokenizers.Tokenizer.from_str((model / "tokenizer.json").read_text())
    assert engine.spec.vocab_size == len(kept) == after.get_vocab_size() < 700
    assert [after.id_to_token(i) for i in range(len(kept))] == [before.id_to_token(i) for i in kept]
    assert (entry.bos_token_id, entry.eos_token_ids) == (kept.index(0), (kept.index(1),))
    assert "vocab-trim{sha256=" in artifact.manifest.pipeline
    assert str(tmp_path) not in (artifact.path / "manifest.json").read_text()
    facts = artifact.report()["vocabulary"]
    assert (facts["kept"], facts["tokens"], facts["text"]) == (len(kept), 701, "domain.txt")
    assert 0 < facts["heldout_respelled"] < 0.5 < 1 < facts["heldout_growth"] < 2
    (reference, _), *_ = measured
    assert isinstance(reference, BlockwiseReference)
    assert width(reference.model.graph.outputs[0]) == len(kept), "gates compare the same tokens"
    run = optc("run", artifact.path, "--prompt", "abc", "--max-tokens", "5", "--json")
    assert run.code == 0
    assert max(run.json["token_ids"]) < len(kept)


def test_the_source_is_compared_on_the_same_tokens(
    optc: Optc, compile_trimmed: Optc, model: Path, tmp_path: Path
) -> None:
    assert compile_trimmed("--no-gates").code == 0
    read = ("--text", tmp_path / "heldout.txt", "--reference", model)
    outcome = optc("eval", tmp_path / "out/a", *read, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["kl_mean"] > 0, "the toy engine is another model"


def test_a_token_that_the_text_has_seldom_goes(compile_trimmed: Optc, tmp_path: Path) -> None:
    sizes = []
    for count in (1, 4):
        more = ("--set", f"vocab-trim.min_count={count}", "--no-gates", "--force")
        assert compile_trimmed(*more).code == 0
        sizes.append(Artifact.open(tmp_path / "out/a").manifest.engines[0].spec.vocab_size)
    assert sizes[0] > sizes[1]


def test_without_a_text_of_the_domain_it_is_refused(compile_trimmed: Optc, tmp_path: Path) -> None:
    outcome = compile_trimmed(text=False)
    assert outcome.code == 2
    assert (
        "pass vocab-trim: there is no text of a domain whose tokens stay (--calibration FILE gives "
        "one such as the model will read and write)"
    ) in outcome.err
    assert nothing_left(tmp_path)


def test_other_kinds_of_tokenizers_are_refused(
    compile_trimmed: Optc, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = tokenizers.Tokenizer(tokenizers.models.Unigram([("<unk>", 0.0), ("a", -1.0)], 0))
    before = (model / "tokenizer.json").read_text()
    (model / "tokenizer.json").write_text(pieces.to_str())
    try:
        outcome = compile_trimmed()
    finally:
        (model / "tokenizer.json").write_text(before)
    assert outcome.code == 2
    assert "a tokenizer of the kind Unigram cannot be trimmed (byte-pair" in outcome.err
    assert nothing_left(tmp_path)


def test_a_plan_is_of_the_whole_vocabulary_and_says_so(
    optc: Optc, compile_trimmed: Optc, model: Path, tmp_path: Path
) -> None:
    outcome = optc("plan", model, "--recipe", tmp_path / "trimmed.yaml", "--json")
    assert outcome.code == 0, outcome.err
    (warning,) = (text for text in outcome.json["warnings"] if "vocab-trim" in text)
    assert warning == "pass vocab-trim: sizes and costs are of the whole vocabulary"
