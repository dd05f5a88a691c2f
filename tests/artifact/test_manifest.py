from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from optc.artifact.jsonio import canonical_json
from optc.artifact.manifest import FileEntry, GateEntry, Pieces, Source, digest_of
from optc.artifact.parse_manifest import parse_manifest
from optc.errors import ArtifactError
from tests.artifact.toy import toy_engine, toy_manifest

FILES = (FileEntry("engines/target/weights.bin", 10, "00" * 32),)


def written() -> dict[str, Any]:
    return json.loads(json.dumps(toy_manifest(FILES).to_json()))


def redigested(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "digest": digest_of(value)}


def test_json_reads_back_to_the_same_manifest() -> None:
    assert parse_manifest(written(), "m") == toy_manifest(FILES)


def test_digest_ignores_key_order_and_itself_but_no_other_change() -> None:
    value = written()
    assert digest_of(dict(reversed(value.items()))) == value["digest"]
    assert digest_of({**value, "digest": "0"}) == value["digest"]
    assert digest_of({**value, "name": "other"}) != value["digest"]


def test_canonical_json_has_one_form_and_refuses_nan() -> None:
    assert canonical_json({"b": [1, "ä"], "a": None}) == '{"a":null,"b":[1,"ä"]}'.encode()
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json(float("nan"))


def test_changed_manifest_is_refused() -> None:
    with pytest.raises(ArtifactError, match="digest does not match") as caught:
        parse_manifest({**written(), "name": "other"}, "a/manifest.json")
    assert caught.value.where == "a/manifest.json"
    assert "compile the model again" in caught.value.hint


def test_other_format_version_is_refused() -> None:
    with pytest.raises(ArtifactError, match="format version 99, but this optc reads version 2"):
        parse_manifest({**written(), "format": 99}, "m")


def test_unknown_kv_type_is_refused() -> None:
    value = written()
    value["engines"][0]["spec"]["layers"][0]["dtype"] = "int3"
    with pytest.raises(
        ArtifactError, match="'dtype' is 'int3', none of float32, float16, bfloat16, int8"
    ):
        parse_manifest(redigested(value), "m")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "."])
def test_paths_that_leave_the_artifact_are_refused(path: str) -> None:
    value = written()
    value["files"][0]["path"] = path
    with pytest.raises(ArtifactError, match="leaves the artifact"):
        parse_manifest(redigested(value), "m")


def test_engine_folder_that_leaves_the_artifact_is_refused() -> None:
    value = written()
    value["engines"][0]["folder"] = "../elsewhere"
    with pytest.raises(ArtifactError, match="leaves the artifact"):
        parse_manifest(redigested(value), "m")


def test_missing_and_mistyped_keys_are_named_with_their_place() -> None:
    value = written()
    del value["engines"][0]["spec"]["layers"][1]["key_dim"]
    with pytest.raises(ArtifactError, match="the key 'key_dim' is missing") as caught:
        parse_manifest(redigested(value), "m")
    assert caught.value.where == "m: engines[0]: spec: layers[1]"
    value = written()
    value["files"][0]["bytes"] = True
    with pytest.raises(ArtifactError, match="'bytes' is not int but bool"):
        parse_manifest(redigested(value), "m")
    value = written()
    value["tokenizer"]["eos_token_ids"] = ["x"]
    with pytest.raises(ArtifactError, match="'eos_token_ids' holds str, not int"):
        parse_manifest(redigested(value), "m")
    value = written()
    value["gates"][0]["bound"] = "small"
    with pytest.raises(ArtifactError, match="'bound' is not float but str"):
        parse_manifest(redigested(value), "m")
    with pytest.raises(ArtifactError, match="is not a JSON object but list"):
        parse_manifest([], "m")


def test_only_engines_of_another_source_name_it() -> None:
    """As before there were drafts, so that older manifests keep their digests."""
    assert "source" not in written()["engines"][0]
    source = Source("small", "cd" * 32, "llama", {"hidden_size": 4})
    draft = replace(toy_engine("draft"), role="draft", source=source)
    value = json.loads(json.dumps(toy_manifest(FILES, toy_engine(), draft).to_json()))
    assert [engine.get("source", {}).get("name") for engine in value["engines"]] == [None, "small"]
    assert parse_manifest(value, "m").engines == (toy_engine(), draft)


def test_gates_of_one_engine_are_written_as_before_there_were_several() -> None:
    """Manifests of a sole engine keep their bytes, and with them their digests."""
    assert written()["gates"][0] == {"name": "kl_mean", "bound": 1e-6, "passed": True}
    gates = (
        GateEntry("kl_mean", 1e-6, True, "tvm-native"),
        GateEntry("x", None, None, lowered=True),
    )
    several = replace(toy_manifest(FILES), gates=gates)
    value = json.loads(json.dumps(several.to_json()))
    assert value["gates"] == [
        {"name": "kl_mean", "bound": 1e-6, "passed": True, "engine": "tvm-native"},
        {"name": "x", "bound": None, "passed": None, "lowered": True},
    ]
    assert parse_manifest(value, "m") == several


PIECES = Pieces(1 << 20, ("01" * 32, "ab" * 32, "ff" * 32))
LARGE = FileEntry("engines/target/weights.bin", (2 << 20) + 1, "00" * 32, PIECES)


def with_pieces(change: dict[str, Any]) -> dict[str, Any]:
    value = json.loads(json.dumps(toy_manifest((LARGE,)).to_json()))
    value["files"][0]["pieces"].update(change)
    return redigested(value)


def test_pieces_are_read_back_and_absent_where_there_are_none() -> None:
    assert parse_manifest(with_pieces({}), "m").files == (LARGE,)
    assert "pieces" not in written()["files"][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"sha256": list(PIECES.sha256[:2])},
            "2 pieces, where 2097153 bytes in pieces of 1048576 are 3",
        ),
        ({"sha256": []}, "0 pieces, where"),
        ({"sha256": [*PIECES.sha256, "00" * 32]}, "4 pieces, where"),
        ({"bytes": 2 << 20}, "3 pieces, where 2097153 bytes in pieces of 2097152 are 2"),
        ({"bytes": 0}, "pieces of 0 bytes, which are no multiple of 1 MiB"),
        ({"bytes": -(1 << 20)}, "pieces of -1048576 bytes"),
        ({"bytes": (1 << 20) + (1 << 19)}, "no multiple of 1 MiB"),
        ({"bytes": "64 MiB"}, "'bytes' is not int but str"),
        ({"sha256": ["01" * 32, "AB" * 32, "ff" * 32]}, "piece 1 is no sha256 in hex: 'ABAB"),
        ({"sha256": ["01" * 32, "ab" * 32, "ff" * 31]}, "piece 2 is no sha256 in hex"),
        ({"sha256": ["01" * 32, "ab" * 32, "ff" * 32 + "\n"]}, "piece 2 is no sha256 in hex"),
        ({"sha256": ["01" * 32, 7, "ff" * 32]}, "'sha256' holds int, not str"),
    ],
)
def test_pieces_must_make_up_their_file(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        parse_manifest(with_pieces(change), "m")
    assert caught.value.where == "m: files[0]: pieces"
