"""The step of a compile that trims its vocabulary: what later stages get, and refusals."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import tokenizers

from optc.artifact.manifest import TokenizerEntry
from optc.compiling.resolving.options import ResolvedOptions, resolve_options
from optc.compiling.vocabulary import trim
from optc.compiling.vocabulary.trim import trim_vocabulary
from optc.errors import InputError
from optc.importer.imported import ImportedModel
from optc.ir.vocabulary import digest_ids, read_ids
from optc.proof.conversations.load import folder_chat
from optc.system.options import CompileOptions
from tests.compiling.vocabulary.trained import DOMAIN, HELDOUT, byte_level
from tests.support.chats import PLAIN, chat, conversation
from tests.support.stub import StubBackend

RECIPE = """name: trimmed
pipeline: [canonicalize, vocab-trim, propagate-errors, kv-cache]
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text(byte_level())
    return folder


@pytest.fixture
def options(backends: dict[str, StubBackend], source: Path, tmp_path: Path) -> ResolvedOptions:
    (tmp_path / "trimmed.yaml").write_text(RECIPE)
    (tmp_path / "domain.txt").write_text(DOMAIN)
    (tmp_path / "heldout.txt").write_text(HELDOUT)
    asked = CompileOptions(
        recipe=tmp_path / "trimmed.yaml",
        calibration=tmp_path / "domain.txt",
        eval_text=tmp_path / "heldout.txt",
        draft="self:bits=2",
    )
    return resolve_options(source, asked)


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> TokenizerEntry:
    """What the tokenizer's writer says of the model, which it takes from the folder as it is."""
    found = TokenizerEntry(("tokenizer/tokenizer.json",), 0, (1, 2), add_bos=True)

    def write(folder: Path, files: object, config: object, artifact: Path, **_: Any) -> Any:
        (artifact / "tokenizer").mkdir()
        shutil.copy(folder / "tokenizer.json", artifact / "tokenizer")
        return found

    monkeypatch.setattr(trim, "write_tokenizer", write)
    return found


def imported(source: Path) -> ImportedModel:
    model = ir.Model(ir.Graph([], [], nodes=[]), ir_version=10)
    return ImportedModel(model, {}, "llama", "m", source, "00" * 32, [], [], 64)


def test_passes_and_drafts_get_the_list_and_the_tokenizer(
    options: ResolvedOptions, entry: TokenizerEntry, source: Path, tmp_path: Path
) -> None:
    found = trim_vocabulary(options, imported(source), tmp_path)
    kept = read_ids(found.folder)
    assert found.facts.kept == len(kept)
    assert found.facts.text == "domain.txt"
    assert found.entry.bos_token_id == kept.index(0)
    assert found.entry.eos_token_ids == (kept.index(1), kept.index(2))
    assert found.entry.files == ("tokenizer/tokenizer.json", "tokenizer/kept_ids.json")
    assert json.loads((found.folder / "config.json").read_text()) == {
        "bos_token_id": kept.index(0),
        "eos_token_id": kept.index(1),
    }
    passes = {one.name: vars(one) for one in found.options.recipe.pipeline.passes}
    assert passes["vocab-trim"]["folder"] == str(found.folder)
    assert passes["vocab-trim"]["sha256"] == digest_ids(kept)
    (draft,) = found.options.candidates
    for recipe in (found.options.recipe, draft.recipe):
        (reads,) = (p for p in recipe.pipeline.passes if p.name == "propagate-errors")
        assert vars(reads)["folder"] == str(found.folder)
    assert found.write_tokenizer(tmp_path / "artifact") == found.entry
    for name in found.entry.files:
        assert (tmp_path / "artifact" / name).is_file()
    whole = tokenizers.Tokenizer.from_file(str(found.folder / "tokenizer.json"))
    assert whole.get_vocab_size() == len(kept)


def test_the_share_of_other_tokens_is_that_of_the_held_out_text(
    options: ResolvedOptions, entry: TokenizerEntry, source: Path, tmp_path: Path
) -> None:
    found = trim_vocabulary(options, imported(source), tmp_path)
    kept = read_ids(found.folder)
    before = tokenizers.Tokenizer.from_str(byte_level())
    after = tokenizers.Tokenizer.from_file(str(found.folder / "tokenizer.json"))
    was, now = (one.encode(HELDOUT, add_special_tokens=False).ids for one in (before, after))
    facts = found.facts
    assert facts.heldout_tokens == len(was)
    assert facts.heldout_respelled == sum(one not in kept for one in was) / len(was) > 0
    assert facts.heldout_growth == len(now) / len(was) > 1


def test_a_text_that_reads_otherwise_is_refused(
    options: ResolvedOptions,
    entry: TokenizerEntry,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list that lacks bytes would lose what only they spell."""

    def too_few(data: Any, *rest: Any) -> list[int]:
        return sorted({one["id"] for one in data["added_tokens"]} | set(range(20, 60)))

    monkeypatch.setattr(trim, "kept_ids", too_few)
    with pytest.raises(InputError, match="with the trimmed tokenizer a text reads") as caught:
        trim_vocabulary(options, imported(source), tmp_path)
    assert caught.value.where == str(source)
    assert "Glossary" in caught.value.message


def test_a_model_without_a_tokenizer_is_refused(
    options: ResolvedOptions, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="pass vocab-trim: the model has no tokenizer"):
        trim_vocabulary(options, imported(source), tmp_path)


def test_conversations_keep_the_tokens_that_the_template_writes(
    options: ResolvedOptions,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def write(folder: Path, files: object, config: object, artifact: Path, **_: Any) -> Any:
        (artifact / "tokenizer").mkdir()
        shutil.copy(folder / "tokenizer.json", artifact / "tokenizer")
        (artifact / "tokenizer/chat_template.jinja").write_text(PLAIN)
        files = ("tokenizer/tokenizer.json", "tokenizer/chat_template.jinja")
        return TokenizerEntry(files, 0, (1, 2), add_bos=True, chat_template=files[1])

    monkeypatch.setattr(trim, "write_tokenizer", write)
    talk = {"messages": [{"role": r, "content": "qq"} for r in ("user", "assistant")]}
    text = tmp_path / "talk.jsonl"
    text.write_text(json.dumps(talk))
    asked = replace(options.asked, calibration=text)
    found = trim_vocabulary(replace(options, asked=asked), imported(source), tmp_path)
    given = conversation("qq", "qq")
    whole = chat(PLAIN).render(given, given.messages, generate=False).text
    before = tokenizers.Tokenizer.from_str(byte_level())
    assert found.facts.text_tokens == len(before.encode(whole, add_special_tokens=False).ids)
    renders = folder_chat(found.folder)
    assert renders is not None, "passes that read conversations find the template"
