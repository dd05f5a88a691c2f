"""Engines that differ in weights alone, and artifacts that read and write texts alike."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from optc.artifact import same_engine
from optc.artifact.manifest import FileEntry, Manifest
from optc.artifact.same_engine import check_same_engine, check_same_text, weight_files
from optc.errors import InputError
from optc.system.hardware.target import parse_target
from tests.artifact.toy import CODE, toy_engine, toy_manifest

WEIGHTS = "engines/target/weights.bin"
PATHS = (WEIGHTS, *(f"engines/target/{name}" for name in CODE), "tokenizer/tokenizer.json")


def manifest(*changed: str, **engine: Any) -> Manifest:
    """The toy's, with other contents of some files, and another engine."""
    entries = (FileEntry(p, 7, ("cd" if p in changed else "ab") * 32) for p in PATHS)
    return toy_manifest(tuple(entries), replace(toy_engine(), **engine))


def test_weights_may_differ() -> None:
    check_same_engine(manifest(), manifest(), "target", "B")
    check_same_engine(manifest(), manifest(WEIGHTS), "target", "B")
    check_same_engine(manifest(), manifest("tokenizer/tokenizer.json"), "target", "B")


@pytest.mark.parametrize("name", CODE)
def test_code_may_not(name: str) -> None:
    with pytest.raises(InputError, match=rf"B: another engine: engines/target/{name} differs"):
        check_same_engine(manifest(), manifest(f"engines/target/{name}"), "target", "B")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("backend", "onnxruntime"),
        ("target", parse_target("x86-64-v4-vnni")),
        ("requires", {"tvm": "1"}),
        ("interface", replace(toy_engine().spec, max_context=64)),
        ("data", {}),
        ("folder", "engines/other"),
        ("files", ("weights.bin",)),
    ],
)
def test_nor_may_what_the_manifest_says_of_it(part: str, value: Any) -> None:
    old, new = manifest(), manifest(**{part: value})
    for one, other in ((old, new), (new, old)):
        with pytest.raises(InputError, match=f"the '{part}' of 'target' differs"):
            check_same_engine(one, other, "target", "B")


def test_both_must_have_it() -> None:
    for old, new in ((manifest(), manifest(name="draft")), (manifest(name="draft"), manifest())):
        with pytest.raises(InputError, match="B: has no engine 'target'"):
            check_same_engine(old, new, "target", "B")


def test_files_of_weights_are_those_that_the_backend_names(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = replace(toy_engine(), files=("weights.bin", "other/weights.bin", "code.so"))
    assert weight_files(engine) == {WEIGHTS, "engines/target/other/weights.bin"}
    monkeypatch.setattr(same_engine.registry, "backend", lambda name: object())
    with pytest.raises(InputError, match="engines of 'tvm' do not keep weights apart from code"):
        weight_files(engine)


def test_texts_are_read_and_written_alike() -> None:
    same = manifest()
    check_same_text(same, manifest(WEIGHTS), "B")
    without = replace(same, tokenizer=None)
    check_same_text(without, without, "B")
    assert same.tokenizer is not None
    other = replace(same.tokenizer, add_bos=False)
    for new, message in (
        (replace(same, generation={"top_p": 0.5}), "the defaults of generation differ"),
        (replace(same, tokenizer=other), "the conventions of the tokenizer differ"),
        (without, "the conventions of the tokenizer differ"),
        (manifest("tokenizer/tokenizer.json"), "tokenizer/tokenizer.json differs"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            check_same_text(same, new, "B")
        assert (caught.value.where, caught.value.hint) == ("B", "load it as another model")
