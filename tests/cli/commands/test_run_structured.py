"""``optc run`` with a structure: output that has it, and clear errors."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Optc


def test_each_kind_of_structure(optc: Optc, artifact: Path, tmp_path: Path) -> None:
    schema, grammar = tmp_path / "schema.json", tmp_path / "grammar.lark"
    schema.write_text('{"type": "array", "items": {"type": "boolean"}, "maxItems": 2}')
    grammar.write_text('start: "(" /[a-c]{1,4}/ ")"')
    run = ("run", artifact, "--prompt", "ab", "--max-tokens", "60", "--temperature", "1", "--json")
    found = optc(*run, "--json-schema", schema).json
    assert all(isinstance(item, bool) for item in json.loads(found["text"]))
    assert found["finish_reason"] == "stop"
    assert re.fullmatch("[0-9]{3}-é", optc(*run, "--regex", "[0-9]{3}-é").json["text"])
    assert re.fullmatch(r"\([a-c]{1,4}\)", optc(*run, "--grammar", grammar).json["text"])
    chosen = optc(*run, "--choice", "yes", "--choice", "no").json["text"]
    assert chosen in ("yes", "no")
    assert found["forced_tokens"] < found["output_tokens"]


def test_it_streams_and_batches(optc: Optc, artifact: Path) -> None:
    outcome = optc("run", artifact, "--prompt", "ab", "--choice", "just this")
    assert (outcome.code, outcome.out) == (0, "just this\n")
    assert "forced by the structure; ended by stop" in outcome.err
    cut = optc("run", artifact, "--prompt", "ab", "--regex", "[ab]{9}", "--max-tokens", "3")
    assert "ended by length, before the structure was whole" in cut.err
    outcome = optc("run", artifact, "--prompt", "a", "--prompt", "b", "--choice", "this")
    assert outcome.out == "── 'a'\nthis\n── 'b'\nthis\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--regex", "a", "--choice", "b"), "regex and choice exclude each other"),
        (("--regex", "a("), "regex, character 1: unclosed group"),
        (("--json-schema", "absent.json"), "cannot read absent.json: No such file or directory"),
    ],
)
def test_errors(optc: Optc, artifact: Path, arguments: tuple[str, ...], message: str) -> None:
    outcome = optc("run", artifact, "--prompt", "ab", *arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err


def test_files_are_utf8_and_schemas_are_json(optc: Optc, artifact: Path, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xff")
    outcome = optc("run", artifact, "--prompt", "ab", "--grammar", path)
    assert (outcome.code, "it is not UTF-8" in outcome.err) == (2, True)
    path.write_text('{"type":')
    outcome = optc("run", artifact, "--prompt", "ab", "--json-schema", path, "--json")
    assert outcome.code == 2
    assert outcome.json["error"]["where"] == "json_schema, line 1, column 9"


def test_without_llguidance(optc: Optc, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    outcome = optc("run", artifact, "--prompt", "ab", "--choice", "a")
    assert outcome.code == 3
    assert "pip install 'optc[structured]'" in outcome.err


@pytest.mark.parametrize("option", ["--choice", "--regex", "--stop", "--prompt"])
def test_text_that_the_locale_could_not_decode(optc: Optc, artifact: Path, option: str) -> None:
    arguments = ("--prompt", "x", option, b"\xc3\xa9".decode("ascii", "surrogateescape"))
    assert optc("run", artifact, *arguments).err == (
        f"error: {option}: not valid Unicode: surrogates not allowed "
        "(run it in a UTF-8 locale, such as LC_ALL=C.UTF-8)\n"
    )
