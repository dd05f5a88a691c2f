"""A GGUF file whose tokenizer is damaged: one error that names the key, before any import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from optc.errors import InputError
from optc.importer.gguf import folder as gguf_folders
from optc.importer.gguf.file import open_gguf, vocabulary_of
from optc.importer.gguf.folder import gguf_folder
from optc.importer.gguf.vocabulary import PREFIX, TEMPLATE
from tests.cli.conftest import Optc, optc
from tests.importer.gguf.test_damaged import ARRAY, INT, TEXT, TOKENS, key, write

__all__ = ["optc"]

FLOAT = gguf.GGUFValueType.FLOAT32
COUNT = len(TOKENS)
Change = Callable[[gguf.GGUFWriter], object]
#: Keys of lists, an item that is right, and the type of the items.
LISTS: dict[str, tuple[Any, gguf.GGUFValueType]] = {
    "tokens": ("a", TEXT),
    "merges": ("a b", TEXT),
    "scores": (-1.5, FLOAT),
    "token_type": (1, INT),
}
IDS = [f"{name}_token_id" for name in ("bos", "eos", "eot", "eom", "unknown", "padding")]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path / "cache"))


def without(name: str) -> Change:
    def change(writer: gguf.GGUFWriter) -> None:
        for data in writer.kv_data:
            data.pop(f"{PREFIX}{name}", None)

    return change


def value(name: str, given: Any, kind: gguf.GGUFValueType, items: Any = None) -> Change:
    return key(f"{PREFIX}{name}", given, kind, items)


def damages() -> dict[str, tuple[str, Change]]:
    """Every damage: the key that is at fault, and how a file gets it."""
    found: dict[str, tuple[str, Change]] = {}
    for name, (item, kind) in LISTS.items():
        other = [7] * COUNT if kind == TEXT else ["x"] * COUNT
        wrong = INT if kind == TEXT else TEXT
        found[f"{name}: items of another type"] = name, value(name, other, ARRAY, wrong)
        found[f"{name}: no list"] = name, value(name, item, kind)
        found[f"{name}: a number"] = name, value(name, 3, INT)
    for name in ("scores", "token_type"):
        item, kind = LISTS[name]
        for count in (1, COUNT - 1, COUNT + 1, 3 * COUNT):
            found[f"{name}: {count}"] = name, value(name, [item] * count, ARRAY, kind)
    for odd in (float("nan"), float("inf"), -float("inf")):
        scores = [0.0] * (COUNT - 1) + [odd]
        found[f"scores: {odd}"] = "scores", value("scores", scores, ARRAY, FLOAT)
    for name in IDS:
        for number in (COUNT, 10**6, -2):
            found[f"{name}: {number}"] = name, value(name, number, INT)
        found[f"{name}: a text"] = name, value(name, "two", TEXT)
        found[f"{name}: a list"] = name, value(name, [1, 2], ARRAY, INT)
    for merge in ("a zz", "zz a", "zz yy", "a c", "a", "a b c", "", " ", "a  b", "ab "):
        found[f"merge {merge!r}"] = "merges", value("merges", ["a b", merge], ARRAY, TEXT)
    for twice in ([*TOKENS[:-2], "a", "ab"], [*TOKENS, TOKENS[0]], ["a"] * COUNT):
        found[f"tokens: twice {len(twice)} {twice[0]}"] = (
            "tokens",
            value("tokens", twice, ARRAY, TEXT),
        )
    for given, kind, items in (("gpt3", TEXT, None), (3, INT, None), ([3], ARRAY, INT)):
        found[f"model: {given}"] = "model", value("model", given, kind, items)
    found["model: absent"] = "model", without("model")
    found["merges and scores: absent"] = "merges", without("merges")
    for name in ("add_bos_token", "add_eos_token", "add_space_prefix"):
        found[f"{name}: a text"] = name, value(name, "yes", TEXT)
    found["template: a number"] = "chat_template", key(TEMPLATE, 3, INT)
    return found


DAMAGES = damages()


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_tokenizer_is_one_error_that_names_the_key(name: str, tmp_path: Path) -> None:
    at_fault, change = DAMAGES[name]
    file = write(tmp_path / "a.gguf", change)
    with pytest.raises(InputError) as caught:
        gguf_folder(file)
    said = str(caught.value)
    assert str(file) in said
    assert at_fault in said.replace("tokenizer 'gpt3'", "model")
    assert "\n" not in said
    assert list((tmp_path / "cache/gguf").glob("*/*")) == []  # nothing half-made is kept


@pytest.mark.parametrize("command", ["plan", "compile"])
@pytest.mark.parametrize("name", ["merge 'a zz'", "scores: nan", "eos_token_id: 12"])
def test_commands_end_with_exit_code_2_before_anything_is_imported(
    name: str, command: str, optc: Optc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "optc.importer.import_model.import_model", lambda *_, **__: pytest.fail("imported")
    )
    file = write(tmp_path / "a.gguf", DAMAGES[name][1])
    output = ("-o", tmp_path / "out") if command == "compile" else ()
    done = optc(command, file, *output)
    assert (done.code, done.out) == (2, "")
    assert f"{PREFIX}{DAMAGES[name][0]}: " in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "change",
    [
        value("scores", [0.0] * COUNT, ARRAY, FLOAT),
        value("token_type", [1] * COUNT, ARRAY, INT),
        value("bos_token_id", -1, INT),  # llama.cpp's word for none
        value("padding_token_id", COUNT - 1, INT),
        value("pre", "default", TEXT),
        without("eos_token_id"),
    ],
)
def test_what_is_right_is_taken(change: Change, tmp_path: Path) -> None:
    assert (gguf_folder(write(tmp_path / "a.gguf", change)) / "tokenizer.json").is_file()


def test_without_a_list_of_tokens_there_is_no_tokenizer(tmp_path: Path) -> None:
    folder = gguf_folder(write(tmp_path / "a.gguf", without("tokens")))
    assert not (folder / "tokenizer.json").exists()


def test_lists_are_read_whole_however_long_they_are(tmp_path: Path) -> None:
    count = 5000
    tokens = [f"é{number}" for number in range(count)]

    def change(writer: gguf.GGUFWriter) -> None:
        value("tokens", tokens, ARRAY, TEXT)(writer)
        value("scores", np.arange(count, dtype=np.float32).tolist(), ARRAY, FLOAT)(writer)
        value("token_type", [1] * count, ARRAY, INT)(writer)

    found = vocabulary_of(open_gguf(write(tmp_path / "a.gguf", change)))
    assert found[f"{PREFIX}tokens"] == tokens
    assert found[f"{PREFIX}scores"] == [float(number) for number in range(count)]
    assert found[f"{PREFIX}token_type"] == [1] * count
    assert found[f"{PREFIX}merges"] == ["a b"]


def test_a_panic_of_the_package_is_an_error_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_folders, "check_vocabulary", lambda *_: None)
    file = write(tmp_path / "a.gguf", value("tokens", "abc", TEXT))
    with pytest.raises(InputError, match="PanicException"):
        gguf_folder(file)
