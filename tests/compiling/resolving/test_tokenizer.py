"""The tokenizer's way into the artifact: what is written, and what of its files is refused."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.manifest import TokenizerEntry
from optc.compiling.resolving.tokenizer import write_tokenizer
from optc.errors import InputError, UnsupportedError
from optc.proof.conversations.load import folder_templates
from optc.runtime.text.chat_template import render_template
from tests.runtime.support.texts import byte_level

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 264}
SETTINGS = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    byte_level(bos=True).save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer_config.json").write_text(json.dumps(SETTINGS))
    return folder


def edit(model: Path, **changes: Any) -> None:
    (model / "tokenizer_config.json").write_text(json.dumps({**SETTINGS, **changes}))


def write(model: Path, *, allowed: bool = False, **config: Any) -> TokenizerEntry | None:
    artifact = model.parent / "artifact"
    artifact.mkdir()
    files = sorted(file for file in model.iterdir() if file.name != "config.json")
    return write_tokenizer(model, files, CONFIG | config, artifact, allow_remote_code=allowed)


def test_what_is_written(model: Path) -> None:
    edit(model, chat_template="{{ bos_token }}")
    (model / "generation_config.json").write_text('{"eos_token_id": [1, 2], "bos_token_id": null}')
    entry = write(model, bos_token_id=0)
    assert entry == TokenizerEntry(
        files=("tokenizer/tokenizer.json", "tokenizer/chat_template.jinja"),
        bos_token_id=0,
        eos_token_ids=(1, 2),
        add_bos=True,
        bos_token="<s>",
        eos_token="</s>",
        chat_template="tokenizer/chat_template.jinja",
    )
    assert (
        model.parent / "artifact/tokenizer/chat_template.jinja"
    ).read_text() == "{{ bos_token }}"


def test_a_tokenizer_that_cannot_encode_plain_text_is_refused(model: Path) -> None:
    edit(model, tokenizer_class="BertTokenizer")  # needs the token [UNK], which is not there
    with pytest.raises(InputError) as caught:
        write(model)
    error = caught.value.render()
    assert error.startswith(f"{model}: the tokenizer cannot encode plain text: WordPiece error")
    assert "tokenizer_class may not belong together" in error


def test_a_model_without_a_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    assert write(model) is None
    assert not list((model.parent / "artifact").iterdir())


def test_minus_one_is_no_token(model: Path) -> None:
    entry = write(model, eos_token_id=-1, bos_token_id=[-1])
    assert entry is not None
    assert (entry.bos_token_id, entry.eos_token_ids) == (None, ())


@pytest.fixture
def evil(model: Path) -> Path:
    """A tokenizer whose class is code of the folder's, which leaves a file where it runs."""
    trace = model.parent / "it ran"
    (model / "evil.py").write_text(
        f"open({str(trace)!r}, 'w').close()\n"
        "from transformers import PreTrainedTokenizerFast\n"
        "class EvilTokenizer(PreTrainedTokenizerFast): pass\n"
    )
    names = ["evil.EvilTokenizer", "evil.EvilTokenizer"]
    edit(model, tokenizer_class="EvilTokenizer", auto_map={"AutoTokenizer": names})
    return trace


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], bool]:
    """Somebody says yes to everything; whether anything was asked. Copies of code stay here."""
    answers = io.StringIO("yes\n" * 100)
    monkeypatch.setattr(sys, "stdin", answers)
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "hf"))
    return lambda: answers.tell() > 0


def test_code_of_a_tokenizer_is_refused_without_a_question(
    model: Path, evil: Path, asked: Callable[[], bool]
) -> None:
    with pytest.raises(UnsupportedError, match=r"auto_map names.*--allow-remote-code") as caught:
        write(model)
    assert caught.value.where == str(model / "tokenizer_config.json")
    assert not evil.exists()
    assert not asked()


def test_transformers_itself_refuses_too(
    model: Path, evil: Path, asked: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should it take code from a place that is not known here."""
    monkeypatch.setattr(
        "optc.compiling.resolving.tokenizer.check_remote_code", lambda *a, **o: None
    )
    with pytest.raises(InputError, match="custom code"):
        write(model)
    assert not evil.exists()
    assert not asked()


def test_code_runs_where_it_is_allowed(model: Path, evil: Path, asked: Callable[[], bool]) -> None:
    assert write(model, allowed=True) is not None
    assert evil.exists()
    assert not asked()


DEEP = '{"a":' * 100_000


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("tokenizer.json", "{", "tokenizer.json: not readable as JSON"),
        ("tokenizer.json", "{}", "model: the tokenizer cannot be read: "),
        ("tokenizer.json", '{"version": "1.0", "model": {"type": "BPE", "vocab": 3}}', "cannot be"),
        ("tokenizer.json", DEEP, "tokenizer.json: not readable as JSON: it is nested more than"),
        ("tokenizer_config.json", DEEP, "tokenizer_config.json: not readable as JSON: it is nes"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json: not a JSON object"),
        ("generation_config.json", DEEP, "generation_config.json: not readable as JSON: it is"),
        ("generation_config.json", "[1]", "generation_config.json: not a JSON object"),
        ("generation_config.json", '{"bos_token_id": NaN}', "it holds NaN"),
        ("generation_config.json", '{"bos_token_id": "0"}', "bos_token_id is '0', which is no tok"),
        ("generation_config.json", '{"eos_token_id": [1, true]}', "eos_token_id is True, which is"),
        ("generation_config.json", '{"eos_token_id": 2147483648}', "which is no token id"),
        ("generation_config.json", '{"eos_token_id": -2}', "which is no token id"),
        ("special_tokens_map.json", '{"bos_token": "\\ud800"}', "half of a surrogate pair"),
    ],
)
def test_damaged_files_are_named(model: Path, file: str, text: str, message: str) -> None:
    (model / file).write_text(text)
    with pytest.raises(InputError, match=message):
        write(model)


def test_a_tokenizer_that_the_package_panics_at_is_a_user_error(model: Path) -> None:
    template = {"type": "TemplateProcessing", "pair": [], "special_tokens": {}}
    template["single"] = [{"SpecialToken": {"id": "<x>", "type_id": 0}}]
    for part, failed in (
        ({"normalizer": {"type": "Precompiled"}}, "be read: RustError: "),
        ({"post_processor": template}, "encode plain text: "),
    ):
        described = json.loads(byte_level().to_str())
        (model / "tokenizer.json").write_text(json.dumps({**described, **part}))
        with pytest.raises(InputError, match=f"the tokenizer cannot {failed}"):
            write(model, bos_token_id=0)
        shutil.rmtree(model.parent / "artifact")


@pytest.mark.parametrize(
    "changes",
    [
        {"chat_template": 3},
        {"chat_template": {"default": 3}},
        {"added_tokens_decoder": 3},
        {"added_tokens_decoder": {"x": {"content": 3}}},
        {"added_tokens_decoder": [1]},
        {"bos_token": 3},
        {"tokenizer_class": 3},
        {"auto_map": 3},
        {"extra_special_tokens": 3},
        {"fast_tokenizer_files": 3},
    ],
    ids=str,
)
def test_settings_of_other_types_are_user_errors(model: Path, changes: dict[str, Any]) -> None:
    edit(model, **changes)
    with pytest.raises(InputError) as caught:
        write(model)
    assert caught.value.where.startswith(str(model))
    assert caught.value.hint


@pytest.mark.parametrize(
    "changes",
    [{"model_max_length": "x"}, {"chat_template": [{"name": 3, "template": 3}]}],
    ids=str,
)
def test_settings_that_nobody_needs_may_be_anything(model: Path, changes: dict[str, Any]) -> None:
    edit(model, **changes)
    entry = write(model)
    assert entry is not None
    assert not entry.chat_template


def test_tokens_that_a_wrapper_keeps_below_the_top(model: Path) -> None:
    below = {"bos_token_id": 0, "eos_token_id": [1, 77]}
    entry = write(model, eos_token_id=None, text_config=below)
    assert entry is not None
    assert (entry.bos_token_id, entry.eos_token_ids) == (0, (1, 77))


def template_of(model: Path) -> str:
    return (model.parent / "artifact/tokenizer/chat_template.jinja").read_text()


def test_a_template_for_tools_is_taken(model: Path) -> None:
    named = [{"name": name, "template": f"{name}: {{{{ tools }}}}"} for name in ("tool_use", "rag")]
    edit(model, chat_template=[{"name": "default", "template": "plain"}, *named])
    assert write(model) is not None
    source = template_of(model)
    assert render_template(source, {"tools": None}) == "plain"
    assert render_template(source, {"tools": [1]}) == "tool_use: [1]"
    assert folder_templates(model) == (source, ("rag",))


def test_templates_in_files_of_their_own(model: Path) -> None:
    edit(model, chat_template="of the settings")
    (model / "chat_template.json").write_text('{"chat_template": "of the processor"}')
    (model / "chat_template.jinja").write_text("a file's")
    (model / "additional_chat_templates").mkdir()
    (model / "additional_chat_templates/tool_use.jinja").write_text("tools")
    assert write(model) is not None
    source = template_of(model)
    assert [render_template(source, {"tools": t}) for t in (None, [])] == ["a file's", "tools"]
    assert folder_templates(model).source == source


def test_the_template_of_a_processor_is_taken_where_the_tokenizer_has_none(model: Path) -> None:
    (model / "chat_template.json").write_text('{"chat_template": "of the processor"}')
    assert write(model) is not None
    assert template_of(model) == folder_templates(model).source == "of the processor"
    shutil.rmtree(model.parent / "artifact")
    (model / "chat_template.json").write_text('{"chat_template": 3}')
    with pytest.raises(InputError, match="not a text but int") as caught:
        write(model)
    assert caught.value.where == str(model / "chat_template.json")


def test_special_tokens_that_a_template_names_are_taken(model: Path) -> None:
    edit(model, chat_template="{{ pad_token }}{{ bos_token }}", pad_token="<pad>", unk_token="<s>")
    entry = write(model)
    assert entry is not None
    assert entry.special_tokens == {"pad_token": "<pad>"}
    assert entry.template_tokens == {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
