"""Artifacts that someone made to do harm, or that a tool damaged: load and verify refuse them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import optc as package
from tests.artifact.toy import forge, list_files, write_toy
from tests.cli.conftest import Optc

Attack = Callable[[Path], object]


def in_manifest(change: Callable[[dict[str, Any]], object]) -> Attack:
    return lambda artifact: forge(artifact, change)


def in_engine(**values: Any) -> Attack:
    return in_manifest(lambda value: value["engines"][0].update(values))


def in_data(**values: Any) -> Attack:
    return in_manifest(lambda value: value["engines"][0]["data"].update(values))


def in_weight(**values: Any) -> Attack:
    return in_manifest(lambda value: value["engines"][0]["data"]["weights"][1].update(values))


def in_spec(**values: Any) -> Attack:
    return in_manifest(lambda value: value["engines"][0]["interface"].update(values))


def in_tokenizer(**values: Any) -> Attack:
    return in_manifest(lambda value: value["tokenizer"].update(values))


def text(source: str) -> Attack:
    return lambda artifact: (artifact / "manifest.json").write_text(source)


def linked(name: str) -> Attack:
    def move(artifact: Path) -> None:
        outside = artifact.parent / "outside"
        (artifact / name).rename(outside)
        (artifact / name).symlink_to(outside)

    return move


def replaced(name: str, make: Callable[[Path], object]) -> Attack:
    def replace(artifact: Path) -> None:
        (artifact / name).unlink()
        make(artifact / name)

    return replace


def unlisted(path: str) -> Attack:
    def remove(value: dict[str, Any]) -> None:
        value["files"] = [entry for entry in value["files"] if entry["path"] != path]

    return in_manifest(remove)


def no_tokenizer(artifact: Path) -> None:
    (artifact / "tokenizer/tokenizer.json").write_text("[]")
    list_files(artifact)


LAYER = {"group": 0, "kv_heads": 1, "key_dim": 8, "value_dim": 8, "dtype": "float32"}

ATTACKS: dict[str, tuple[Attack, str]] = {
    "shared leaves the artifact": (in_data(shared="../../../evil"), "'../evil/libtvm_runtime"),
    "shared is absolute": (in_data(shared="/evil"), "'/evil/libtvm_runtime.so', which the man"),
    "shared takes a detour": (in_data(shared="x/.."), "'shared' is 'x/..', which is no path"),
    "shared is no text": (in_data(shared=7), "expected 'str', got 'int'"),
    "engine not listed": (unlisted("engines/target/engine.so"), "needs the file 'engines"),
    "weights not listed": (unlisted("engines/target/weights.bin"), "needs the file 'engines"),
    "nothing listed": (in_manifest(lambda m: m.update(files=[])), "manifest does not list"),
    "engine states no files": (in_engine(files=[], folder="tokenizer"), "'tokenizer/engine.so'"),
    "library beside the engine": (
        lambda a: (a / "engines/target/libgcc_s.so.1").write_bytes(b""),
        "does not list this file, and it lies in an engine's folder",
    ),
    "chat template outside": (in_tokenizer(chat_template="/etc/hostname"), "leaves the artifact"),
    "chat template not listed": (in_tokenizer(chat_template="report.json"), "does not list"),
    "tokenizer not listed": (unlisted("tokenizer/tokenizer.json"), "the tokenizer needs the file"),
    "tokenizer without a file": (in_tokenizer(files=[]), "lack tokenizer/tokenizer.json"),
    "tokenizer is no tokenizer": (no_tokenizer, "not a tokenizer"),
    "a file is a link": (linked("engines/target/weights.bin"), "the file is a symbolic link"),
    "a folder is a link": (linked("engines/target"), "the folder is a symbolic link"),
    "a folder above is a link": (linked("engines"), "the folder is a symbolic link"),
    "the manifest is a link": (linked("manifest.json"), "is a symbolic link"),
    "a file is a fifo": (replaced("engines/target/weights.bin", os.mkfifo), "is no regular file"),
    "the manifest is a fifo": (replaced("manifest.json", os.mkfifo), "is no regular file"),
    "a file is a folder": (replaced("engines/target/weights.bin", Path.mkdir), "is no regular f"),
    "a file is listed twice": (
        in_manifest(lambda m: m["files"].append(m["files"][0])),
        "is listed more than once",
    ),
    "offset before the file": (in_weight(offset=-4096), "expected 'int' >= 0"),
    "offset between lines": (in_weight(offset=21759), "the offset 21759 is no multiple of 64"),
    "offset behind the file": (in_weight(offset=1 << 40), "its weights need 1099511637504 bytes"),
    "end behind the file": (in_weight(shape=[9729]), "need 10241 bytes, 'engines/target/weights."),
    "weights overlap": (in_weight(offset=448, shape=[64]), "'b' overlaps 'a'|'a' overlaps 'b'"),
    "weights of one name": (in_weight(name="a"), "two weights have one name"),
    "weights of no type": (in_weight(dtype="float99"), "data type 'float99' not understood"),
    "weights of objects": (in_weight(dtype="object"), "weights of 'object'"),
    "shape with a text": (in_weight(shape=["T"]), "expected 'int', got 'str'"),
    "shape without elements": (in_weight(shape=[0]), "expected 'int' >= 1"),
    "shape with a fraction": (in_weight(shape=[1.5]), "expected 'int', got 'float'"),
    "weights are no list": (in_data(weights={}), "expected 'array', got 'object'"),
    "weights without keys": (in_data(weights=[{}]), "missing required field 'name'"),
    "features are numbers": (in_data(features=[1]), "expected 'str', got 'int'"),
    "release is a number": (in_data(ffi=1), "expected 'str', got 'int'"),
    "costs are a text": (in_data(costs=""), "expected 'object . null', got 'str'"),
    "costs of a wrong kind": (
        in_data(costs={"peak": "fp32", "kernels": {"k": {"calls": 1, "peak": "fp99"}}}),
        "expected text that matches .int4.*fp32",
    ),
    "data of CUDA": (
        in_manifest(
            lambda value: value["engines"][0].update(
                backend="tvm-cuda",
                data=value["engines"][0]["data"] | {"cuda": {"range_values": 0}},
            )
        ),
        "object contains unknown field 'features'|missing required field 'images'",
    ),
    "block multiple of zero": (in_spec(block_multiple=0), "expected 'int' >= 1"),
    "vocabulary below zero": (in_spec(vocab_size=-1), "expected 'int' >= 1"),
    "vocabulary without end": (in_spec(vocab_size=1 << 40), "expected 'int' <= 2147483647"),
    "context is true": (in_spec(max_context=True), "expected 'int', got 'bool'"),
    "heads without size": (in_spec(layers=[{**LAYER, "key_dim": 0}]), "expected 'int' >= 1"),
    "layers of other groups": (in_spec(groups=[]), "the layers that 'groups' lists are not those"),
    "layout unknown": (in_spec(kv_layout="x"), "invalid enum value 'x'"),
    "rates unknown": (in_spec(accept_rates=[["x"]]), "expected 'float', got 'str'"),
    "architecture unknown": (
        in_manifest(lambda m: m["engines"][0]["target"].update(arch="sm_x")),
        "arch is 'sm_x', not sm_90",
    ),
    "role unknown": (in_engine(role="x"), "the role 'x' is none of draft, eagle, self, target"),
    "requires numbers": (in_engine(requires={"x": 1}), "expected 'str', got 'int'"),
    "packages are a list": (in_manifest(lambda m: m.update(packages=[])), "expected 'object', got"),
    "eos below zero": (in_tokenizer(eos_token_ids=[-1]), "expected 'int' >= 0"),
    "nested deeply": (text('{"format":' + "[" * 100_000), "is nested more than 100 deep"),
    "nested behind the format": (
        text('{"format": 3, "digest": "0", "x": ' + "[" * 500 + "]" * 500 + "}"),
        "is nested more than 100 deep",
    ),
    "not a number": (text('{"format": 3, "x": NaN}'), "it holds NaN"),
    "half a character": (text('{"format": 3, "x": "\\ud800"}'), "half of a surrogate pair"),
    "a huge integer": (in_spec(max_rows=10**30), "expected 'int' <= 2147483647"),
    "a list": (text("[]"), "is not a JSON object"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_load_and_verify_refuse(optc: Optc, tmp_path: Path, name: str) -> None:
    attack, message = ATTACKS[name]
    path = write_toy(tmp_path / "a").path
    attack(path)
    with pytest.raises(package.ArtifactError, match=message):
        package.load(path)
    for command in (("verify",), ("run", "--prompt", "x")):
        outcome = optc(*command, path)
        assert outcome.code == 5
        assert outcome.out == ""
        error = [line for line in outcome.err.splitlines() if not line.startswith("·")]
        assert len(error) == 1, "a traceback"
    with pytest.raises(package.ArtifactError, match=message):
        raise package.ArtifactError(optc("verify", path, "--json").json["error"]["message"])


def test_an_engine_that_this_machine_would_not_choose_is_checked(
    optc: Optc, tmp_path: Path
) -> None:
    path = write_toy(tmp_path / "a").path
    forge(path, lambda m: m["engines"][0]["target"].update(features=["avx9000"]))
    assert optc("verify", path).code == 0
    forge(path, lambda m: m["engines"][0]["data"].update(ffi=None))
    assert optc("verify", path).code == 5


def test_the_artifacts_own_folder_may_be_a_link(optc: Optc, tmp_path: Path) -> None:
    write_toy(tmp_path / "v1")
    (tmp_path / "current").symlink_to("v1")
    assert optc("verify", tmp_path / "current").code == 0
