from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from optc.artifact.jsonio import canonical_json
from optc.artifact.manifest import (
    FileEntry,
    GateEntry,
    Manifest,
    Pieces,
    Source,
    digest_of,
    short_digest,
)
from optc.artifact.parse_manifest import parse_manifest
from optc.errors import ArtifactError, UnsupportedError
from optc.runtime.executable.tensors_interface import TensorsInterface, TensorSpec
from tests.artifact.toy import toy_engine, toy_manifest

FILES = (FileEntry("engines/target/weights.bin", 10, "00" * 32),)
TENSORS = TensorsInterface((TensorSpec("x", "float32", (1,)),), (TensorSpec("y", "float32", (1,)),))


def written(manifest: Manifest | None = None) -> dict[str, Any]:
    made = manifest or toy_manifest(FILES)
    value: dict[str, Any] = json.loads(json.dumps(made.to_json()))
    return value


def redigested(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "digest": digest_of(value)}


def test_json_reads_back_to_the_same_manifest() -> None:
    assert parse_manifest(written(), "m") == toy_manifest(FILES)
    source = Source("small", "cd" * 32, "llama", {"hidden_size": 4, "huge": 2**70, "none": None})
    draft = replace(toy_engine("draft"), role="draft", source=source)
    gates = (
        GateEntry("kl_mean", 1e-6, True, "draft", lowered=True),
        GateEntry("kl_max", None, None),
    )
    full = replace(
        toy_manifest((*FILES, LARGE), toy_engine(), draft), gates=gates, generation={"top_k": 4}
    )
    assert parse_manifest(written(full), "m") == full


def test_a_gate_holds_by_its_own_bound_unless_it_says_so() -> None:
    assert not GateEntry("kl_max", None, None).lowered


def test_every_field_is_written() -> None:
    """So that there is one form, and a digest of it, whatever has which default."""
    value = written()
    assert value["gates"][0].keys() == {"name", "bound", "passed", "engine", "lowered"}
    assert value["files"][0]["pieces"] is value["engines"][0]["source"] is None
    assert value["generation"] == value["tokenizer"]["special_tokens"] == {}
    assert value["task"]["name"] == "text-generation"
    for place in (value, value["gates"][0], value["engines"][0]["interface"]):
        for key in [k for k in place if k not in ("format", "digest")]:
            kept = place.pop(key)
            with pytest.raises(ArtifactError, match=r"missing required field|not in the form"):
                parse_manifest(redigested(value), "m")
            place[key] = kept
    parse_manifest(redigested(value), "m")


def test_digest_ignores_key_order_and_itself_but_no_other_change() -> None:
    value = written()
    assert digest_of(dict(reversed(value.items()))) == value["digest"]
    assert digest_of({**value, "digest": "0"}) == value["digest"]
    assert digest_of({**value, "name": "other"}) != value["digest"]
    assert parse_manifest(dict(reversed(value.items())), "m").digest == value["digest"]


def test_canonical_json_has_one_form_and_refuses_nan() -> None:
    assert canonical_json({"b": [1, "ä"], "a": None}) == '{"a":null,"b":[1,"ä"]}'.encode()
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json(float("nan"))


def test_changed_manifest_is_refused() -> None:
    with pytest.raises(ArtifactError, match="digest does not match") as caught:
        parse_manifest({**written(), "name": "other"}, "a/manifest.json")
    assert caught.value.where == "a/manifest.json"
    assert "compile the model again" in caught.value.hint


def test_other_format_versions_are_refused() -> None:
    """The optc that is needed is named, as far as a manifest of another format tells."""
    with pytest.raises(ArtifactError, match="format version 2, but this optc reads version 3") as c:
        parse_manifest({**written(), "format": 2}, "m")
    assert "compile it again" in c.value.hint
    newer = {**written(), "format": 99, "packages": {"optc": "7.5"}}
    with pytest.raises(
        ArtifactError, match="format version 99, but this optc reads version 3"
    ) as c:
        parse_manifest(newer, "m")
    assert "install optc 7.5 that wrote it" in c.value.hint
    for packages in (None, {"optc": 3}, {}):
        with pytest.raises(ArtifactError, match="install the optc that wrote it"):
            parse_manifest({**newer, "packages": packages}, "m")


def test_an_interface_of_another_release_is_refused_by_its_name() -> None:
    value = written()
    value["engines"][0]["interface"]["type"] = "stream"
    with pytest.raises(ArtifactError) as caught:
        parse_manifest(redigested(value), "m")
    assert caught.value.render() == (
        "m: engines[0]: this optc knows no interface 'stream'; it knows step, tensors "
        "(install optc 0.1.0 that wrote it)"
    )


def test_missing_and_mistyped_keys_are_named_with_their_place() -> None:
    with pytest.raises(ArtifactError, match="expected 'object', got 'array'"):
        parse_manifest([], "m")
    value = written()
    del value["engines"][0]["interface"]["layers"][1]["key_dim"]
    with pytest.raises(ArtifactError, match="missing required field 'key_dim'") as caught:
        parse_manifest(redigested(value), "m")
    assert caught.value.where == "m: engines[0].interface.layers[1]"
    assert "compile the model again" in caught.value.hint
    for place, other, problem in (
        ("files", [{**value["files"][0], "bytes": True}], "expected 'int', got 'bool'"),
        ("gates", [{**value["gates"][0], "bound": "small"}], "expected 'float | null', got 'str'"),
        ("gates", [{**value["gates"][0], "extra": 1}], "object contains unknown field 'extra'"),
        ("novelty", 1, "object contains unknown field 'novelty'"),
        ("packages", {"optc": 1}, "expected 'str', got 'int'"),
    ):
        with pytest.raises(ArtifactError) as caught:
            parse_manifest(redigested({**written(), place: other}), "m")
        assert caught.value.message == problem


def test_keys_that_types_ignore_are_refused_too() -> None:
    value = written()
    value["engines"][0]["target"]["novelty"] = 1
    with pytest.raises(ArtifactError, match="is not in the form that optc writes"):
        parse_manifest(redigested(value), "m")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gates": (GateEntry("accuracy", 1.0, True),)}, "'accuracy' is no measure of its task"),
        ({"engines": (replace(toy_engine(), role="encoder"),)},
         "the role 'encoder' is none of draft, eagle, self, target"),
        ({"engines": (replace(toy_engine(), interface=TENSORS),)},
         "the engine 'target' has the interface 'tensors', where the task 'text-generation' has "
         "'step'"),
        ({"engines": (toy_engine(), toy_engine())}, "the engine 'target' is listed more than once"),
        ({"files": FILES * 2}, "the file 'engines/target/weights.bin' is listed more than once"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(toy_manifest(FILES), **change)
    value = {**written(), **json.loads(json.dumps(to_builtins(change)))}
    with pytest.raises(ArtifactError, match=message):
        parse_manifest(redigested(value), "m")


def test_tokens_of_a_template_are_those_of_the_entry() -> None:
    entry = toy_manifest(FILES).tokenizer
    assert entry is not None
    named = replace(entry, bos_token="<s>", special_tokens={"bos_token": "", "image_token": "<i>"})
    assert named.template_tokens == {"bos_token": "<s>", "image_token": "<i>"}


def test_an_engine_of_tensors_has_no_step() -> None:
    engine = toy_engine()
    assert engine.spec is engine.step is engine.interface
    assert replace(engine, interface=TENSORS).step is None
    with pytest.raises(UnsupportedError, match="has the interface 'tensors', where steps are"):
        _ = replace(toy_engine(), interface=TENSORS).spec


PIECES = Pieces(1 << 20, ("01" * 32, "ab" * 32, "ff" * 32))
LARGE = FileEntry("engines/target/large.bin", (2 << 20) + 1, "00" * 32, PIECES)
_NO_DIGEST = "expected text that matches [0-9a-f]{64}"


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        ({"sha256": list(PIECES.sha256[:2])}, "files[0]",
         "2 pieces, where 2097153 bytes in pieces of 1048576 are 3"),
        ({"sha256": []}, "files[0]", "0 pieces, where"),
        ({"sha256": [*PIECES.sha256, "00" * 32]}, "files[0]", "4 pieces, where"),
        ({"bytes": 2 << 20}, "files[0]", "where 2097153 bytes in pieces of 2097152 are 2"),
        ({"bytes": 0}, "files[0].pieces", "pieces of 0 bytes, which are no multiple of 1 MiB"),
        ({"bytes": -(1 << 20)}, "files[0].pieces.bytes", "expected 'int' >= 0"),
        ({"bytes": (1 << 20) + (1 << 19)}, "files[0].pieces", "no multiple of 1 MiB"),
        ({"bytes": "64 MiB"}, "files[0].pieces.bytes", "expected 'int', got 'str'"),
        ({"sha256": ["01" * 32, "AB" * 32, "ff" * 32]}, "files[0].pieces.sha256[1]", _NO_DIGEST),
        ({"sha256": ["01" * 32, "ab" * 32, "ff" * 31]}, "files[0].pieces.sha256[2]", _NO_DIGEST),
        ({"sha256": ["01" * 32, "ab" * 32, f"{'ff' * 32}\n"]}, "files[0].pieces.sha256[2]",
         _NO_DIGEST),
        ({"sha256": ["01" * 32, 7, "ff" * 32]}, "files[0].pieces.sha256[1]", "got 'int'"),
    ],
)  # fmt: skip
def test_pieces_must_make_up_their_file(change: dict[str, Any], where: str, message: str) -> None:
    value = written(toy_manifest((LARGE,)))
    value["files"][0]["pieces"].update(change)
    with pytest.raises(ArtifactError) as caught:
        parse_manifest(redigested(value), "m")
    assert message in caught.value.message
    assert caught.value.where == f"m: {where}"


def test_who_compiled_it_and_which_models_were_judged_beside_it() -> None:
    assert toy_manifest(FILES).compiled_by == "optc 0.1.0"
    assert GateEntry("kl_max", None, None).lowered is False
    assert written()["gates"][0]["lowered"] is False


def test_the_part_of_a_digest_that_is_shown() -> None:
    """As long as the identifiers of containers: of a million artifacts hardly two share theirs."""
    assert short_digest("0123456789abcdef" * 4) == "0123456789ab"
