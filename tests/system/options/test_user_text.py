"""Text files that users give are read in one way: with or without a byte order mark."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import optc
from optc.cli.config_file import read_config
from optc.cli.generating.messages import read_messages
from optc.cli.generating.prompts import PromptOptions
from optc.compiling.recipes.recipe import load_recipe
from optc.errors import InputError
from optc.proof.bench.trace import read_trace
from optc.proof.conversations.read import read_texts
from optc.system.options.user_text import read_user_text, without_mark

MARK = b"\xef\xbb\xbf"
RECIPE = (Path(optc.__file__).parent / "recipes/fp32.yaml").read_text("utf-8")
READERS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "documents": (read_texts, "a.jsonl", '{"text": "a"}\n'),
    "text": (read_texts, "a.txt", "a text"),
    "recipe": (load_recipe, "a.yaml", RECIPE),
    "trace": (read_trace, "a.jsonl", '{"arrival_s": 0, "prompt_tokens": 3, "output_tokens": 2}\n'),
    "messages": (read_messages, "a.json", '[{"role": "user", "content": "hi"}]'),
    "prompt": (lambda path: PromptOptions(prompt_file=(path,)).read(), "p", "def f():"),
    "settings": (read_config, "a.yaml", "run:\n  max-tokens: 3\n"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_byte_order_mark_is_no_text(name: str, tmp_path: Path) -> None:
    read, file, text = READERS[name]
    found = []
    for mark in (b"", MARK):
        (tmp_path / file).write_bytes(mark + text.encode())
        found.append(read(tmp_path / file))
    assert found[0] == found[1]
    (tmp_path / file).write_bytes(b"\xff" + text.encode())
    with pytest.raises(InputError, match=r"cannot read .*: it is not UTF-8"):
        read(tmp_path / file)
    (tmp_path / file).unlink()
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        read(tmp_path / file)


def test_a_mark_before_what_stdin_holds() -> None:
    assert [without_mark(text) for text in ("\ufeffa", "a", "a\ufeff")] == ["a", "a", "a\ufeff"]


def test_messages_name_the_option(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_user_text(tmp_path / "absent", "--text")
    assert caught.value.where == "--text"


def test_nobody_on_the_command_line_reads_text_in_another_way() -> None:
    folder = Path(optc.__file__).parent / "cli"
    calls = [
        f"{path}:{node.lineno}"
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "read_text"
    ]
    assert calls == []
