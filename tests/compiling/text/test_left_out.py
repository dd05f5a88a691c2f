"""Warnings about chat templates that cannot be used, or are left out."""

from __future__ import annotations

import json
from pathlib import Path

import onnx_ir as ir
import pytest

from optc.artifact.manifest import TokenizerEntry
from optc.compiling.text.left_out import left_out
from optc.importer.imported import ImportedModel
from tests.runtime.support.texts import byte_level

GOOD = "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}"
NO_SYSTEM = GOOD.replace("in messages", "in messages if m.role != 'system'")
REFUSES = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + GOOD
)


def model(folder: Path) -> ImportedModel:
    return ImportedModel(
        model=ir.Model(ir.Graph([], [], nodes=[]), ir_version=10),
        config={},
        family="llama",
        name="tiny",
        folder=folder,
        source_digest="",
        tokenizer_files=[],
        warnings=[],
        max_context=8,
    )


def notes(folder: Path, template: str) -> tuple[str, ...]:
    (folder / "tokenizer").mkdir()
    byte_level().save(str(folder / "tokenizer/tokenizer.json"))
    (folder / "tokenizer/chat_template.jinja").write_text(template)
    files = ("tokenizer/tokenizer.json", "tokenizer/chat_template.jinja")
    entry = TokenizerEntry(files, 0, (1,), add_bos=True, chat_template=files[1])
    return left_out(model(folder), folder, entry)


@pytest.mark.parametrize("template", [GOOD, REFUSES])
def test_templates_that_work_or_refuse_by_intent(tmp_path: Path, template: str) -> None:
    assert notes(tmp_path, template) == ()
    assert left_out(model(tmp_path), tmp_path, None) == ()
    plain = TokenizerEntry(("tokenizer/tokenizer.json",), 0, (1,), add_bos=True)
    assert left_out(model(tmp_path), tmp_path, plain) == ()


@pytest.mark.parametrize(
    ("template", "message", "count"),
    [
        ("{{ messages | nothing }}", "the chat template fails: No filter named 'nothing'", 4),
        ("{% nothing %}", "the chat template fails: Encountered unknown tag 'nothing'", 4),
        ("{{ raise_exception('never') }}", "never", 1),
        (GOOD + "{% if tools %}{{ 1 / 0 }}{% endif %}", "the chat template fails: division by", 1),
        ("{{ tools }}", "the chat template leaves out message 1, of the role 'user'", 3),
        (NO_SYSTEM, "the chat template leaves out message 1, of the role 'system'", 1),
        ("{{ messages[1].content + 'x' }}", "the chat template fails: list object has no", 3),
    ],
)
def test_a_template_that_fails(tmp_path: Path, template: str, message: str, count: int) -> None:
    (note,) = notes(tmp_path, template)
    assert note.startswith(message)
    assert note.endswith(f"{count} of 4 conversations that were tried cannot be rendered")


def test_templates_that_are_asked_for_by_name(tmp_path: Path) -> None:
    named = [{"name": name, "template": "x"} for name in ("default", "tool_use", "rag", "b")]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert notes(tmp_path, GOOD) == (
        "chat templates that are asked for by name are left out: b, rag",
    )
