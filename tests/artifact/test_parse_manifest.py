from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from optc.artifact.artifact import Artifact
from optc.artifact.manifest import FileEntry, Manifest, digest_of
from optc.artifact.parse_manifest import parse_manifest
from optc.errors import ArtifactError
from tests.artifact.toy import toy_engine, toy_manifest, write_toy

NAN = float("nan")
#: What a value may be changed to: every type, and numbers at their ends.
OTHERS: tuple[Any, ...] = (None, True, "../x", -1, 2**63, NAN, [[]])
_GONE = object()


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key and index in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in items:
        yield (*place, key)
        if isinstance(child, dict | list):
            yield from places(child, (*place, key))


@contextmanager
def changed(value: Any, place: tuple[Any, ...], other: Any) -> Iterator[None]:
    """Another value in its place, or none, for the body of a ``with``."""
    parent = value
    for key in place[:-1]:
        parent = parent[key]
    before = copy.copy(parent)
    if other is _GONE:
        del parent[place[-1]]
    else:
        parent[place[-1]] = other
    yield
    parent.clear()
    parent.update(before) if isinstance(parent, dict) else parent.extend(before)


def test_no_changed_value_ends_in_another_error(tmp_path: Path) -> None:
    """Each value of a manifest is left out and replaced by others, with the digest made anew: the
    artifact opens or is refused."""
    engine = toy_engine()
    costs = {"calls": 1, "peak": "fp32", "bytes": {"1": 2.0}, "ops": {}, "shape": ""}
    more = {"costs": {"peak": "fp32", "kernels": {"k": costs}}}
    path = write_toy(tmp_path / "a", replace(engine, data={**engine.data, **more})).path
    whole = json.loads((path / "manifest.json").read_text())
    del whole["digest"]
    opened = refused = 0
    for place in list(places(whole)):
        for other in (_GONE, *OTHERS):
            with changed(whole, place, other):
                digest = "0" if other is NAN else digest_of(whole)
                (path / "manifest.json").write_text(json.dumps({**whole, "digest": digest}))
            try:
                artifact = Artifact.open(path, "size")
            except ArtifactError:
                refused += 1
            else:
                opened += 1
                assert artifact.manifest.to_json()
    assert refused > 5 * opened > 0


FILE = FileEntry("engines/target/weights.bin", 10, "00" * 32)


def parsed(place: str, other: Any) -> Manifest:
    """A manifest with another value in its place, a path of keys and indices."""
    value = json.loads(json.dumps(toy_manifest((FILE,)).to_json()))
    *parents, key = (int(part) if part.isdigit() else part for part in place.split("."))
    parent = value
    for each in parents:
        parent = parent[each]
    parent[key] = other
    return parse_manifest({**value, "digest": digest_of(value)}, "m")


def test_what_a_compile_may_write_is_read() -> None:
    assert parsed("files.0.bytes", 0).files[0].bytes == 0
    assert parsed("files.0.path", "a.b/..c/ü").files[0].path == "a.b/..c/ü"
    for arch in ("", "sm_90", "sm_80+sm_100"):
        assert parsed("engines.0.target.arch", arch).engines[0].target.arch == arch


@pytest.mark.parametrize(
    ("place", "other", "message"),
    [
        ("files.0.bytes", -1, r"files\[0\].bytes: expected 'int' >= 0"),
        ("files.0.sha256", "00" * 31, r"files\[0\].sha256: expected text that matches "),
        ("files.0.sha256", "AB" * 32, r"files\[0\].sha256: expected text that matches "),
        ("engines.0.target.arch", "sm_9", "arch is 'sm_9', not sm_90 or sm_80.sm_89"),
        ("engines.0.target.arch", "sm_80+", "arch is 'sm_80.', not sm_90"),
        ("engines.0.target.kind", "npu", "kind is 'npu', not cpu or cuda"),
        ("engines.0.interface.layers.0.dtype", "int3", "the KV type 'int3' is none of float32, f"),
        ("tokenizer.files", [], "tokenizer: its files lack tokenizer/tokenizer.json"),
        ("tokenizer.bos_token_id", -1, "tokenizer.bos_token_id: expected 'int' >= 0"),
        ("tokenizer.eos_token_ids", ["x"], "expected 'int', got 'str'"),
        ("task.roles.target", "stream", "invalid enum value 'stream'"),
    ],
)
def test_what_no_compile_writes_is_refused(place: str, other: Any, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        parsed(place, other)


@pytest.mark.parametrize("path", ["a//b", "a/./b", "a/", "./a", "a\\b", "a\nb", "a\x1b[2Jb"])
def test_a_file_has_one_path_and_it_can_be_shown(path: str) -> None:
    """Two spellings of one file would be two files to a check of names."""
    with pytest.raises(ArtifactError, match="is not one that optc compile writes"):
        parsed("files.0.path", path)


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "."])
@pytest.mark.parametrize(
    "place", ["files.0.path", "engines.0.folder", "engines.0.files.0", "tokenizer.files.0"]
)
def test_no_path_leaves_the_artifact(place: str, path: str) -> None:
    with pytest.raises(ArtifactError, match="leaves the artifact"):
        parsed(place, path)
