"""What pruning a layout takes, what it leaves, and what it says."""

from __future__ import annotations

import hashlib
import json
import os
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from optc.artifact.store.oci import prune as module
from optc.artifact.store.oci.layout import Layout
from optc.artifact.store.oci.prune import Pruned, prune
from optc.artifact.store.oci.reference import parse_reference
from optc.errors import InputError

NOW = 1_000_000.0
LAYER, IMAGE = "application/octet-stream", "application/vnd.oci.image.manifest.v1+json"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "time", lambda: NOW)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    folder = tmp_path / "layout"
    (folder / "blobs/sha256").mkdir(parents=True)
    return Layout(parse_reference(f"oci:{folder}:v1", "x"), folder)


def blob(layout: Layout, data: bytes, kind: Any = LAYER, age: float = 1000.0) -> dict[str, Any]:
    """Bytes that are there for so many seconds, and their descriptor."""
    digest = hashlib.sha256(data).hexdigest()
    path = layout.folder / "blobs/sha256" / digest
    path.write_bytes(data)
    os.utime(path, (NOW - age, NOW - age))
    return {"digest": f"sha256:{digest}", "mediaType": kind, "size": len(data)}


def tag(layout: Layout, *layers: dict[str, Any]) -> None:
    """Let the tag name a manifest of some layers."""
    layout.put_manifest(json.dumps({"layers": layers}).encode())
    for path in (layout.folder / "blobs/sha256").iterdir():
        if path.stat().st_mtime > NOW:  # the manifest itself
            os.utime(path, (NOW - 1000, NOW - 1000))


def left(layout: Layout) -> set[str]:
    return {f"sha256:{path.name}" for path in (layout.folder / "blobs/sha256").iterdir()}


def test_what_nothing_leads_to_goes(layout: Layout) -> None:
    kept = [blob(layout, b"weights"), blob(layout, b"code")]
    tag(layout, *kept)
    lost = blob(layout, b"lost")
    (layout.folder / "blobs/sha256/.x.partial-1").write_bytes(b"torn")
    os.utime(layout.folder / "blobs/sha256/.x.partial-1", (1, 1))
    before = left(layout)
    assert prune(layout, 60, dry=True) == Pruned(blobs=2, bytes=8, kept=3)
    assert left(layout) == before
    assert prune(layout, 60) == Pruned(blobs=2, bytes=8, kept=3)
    assert before - left(layout) == {lost["digest"], "sha256:.x.partial-1"}
    assert prune(layout, 60) == Pruned(blobs=0, bytes=0, kept=3)


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_what_several_tags_share_hides_nothing(order: tuple[str, ...], layout: Layout) -> None:
    """Whatever was found before, in which order: all that one of them names is kept."""
    layers = {name: blob(layout, name.encode()) for name in "abcde"}
    for number, names in enumerate(("ab", "ac", order)):
        reference = parse_reference(f"oci:{layout.folder}:v{number}", "x")
        tag(Layout(reference, layout.folder), *(layers[name] for name in names))
    assert prune(layout, 60) == Pruned(blobs=2, bytes=2, kept=3 + 3)
    assert {layers[name]["digest"] for name in "abc"} <= left(layout)


def test_what_is_young_stays(layout: Layout) -> None:
    tag(layout)
    old, young = blob(layout, b"old", age=60), blob(layout, b"young", age=59)
    assert prune(layout, 60) == Pruned(blobs=1, bytes=3, kept=2)
    assert young["digest"] in left(layout)
    assert old["digest"] not in left(layout)


def test_indexes_of_other_tools_lead_on(layout: Layout) -> None:
    layer = blob(layout, b"layer", kind=7)  # no type that anybody knows
    image = blob(layout, json.dumps({"config": layer}).encode(), IMAGE)
    index = blob(layout, json.dumps({"a": [image]}).encode(), IMAGE.replace("manifest", "index"))
    absent = {"digest": f"sha256:{'ab' * 32}", "mediaType": IMAGE, "size": 3}
    tag(layout, index, absent, {"digest": 7, "size": 1})
    assert prune(layout, 0) == Pruned(blobs=0, bytes=0, kept=4)


def test_layers_are_not_read(layout: Layout) -> None:
    """Whatever stands in them: they may be large, and of anybody."""
    lost = blob(layout, b"lost")
    named = blob(layout, json.dumps(lost).encode())
    tag(layout, named, blob(layout, b"no JSON"))
    assert prune(layout, 0).blobs == 1
    assert lost["digest"] not in left(layout)


def test_what_names_itself_is_followed_once(layout: Layout) -> None:
    digest = "cd" * 32
    itself = {"digest": f"sha256:{digest}", "mediaType": IMAGE, "size": 3}
    (layout.folder / "blobs/sha256" / digest).write_text(json.dumps(itself))
    tag(layout, itself)
    assert prune(layout, 0).kept == 2


def test_a_digest_that_leads_out_of_the_layout_is_not_followed(layout: Layout) -> None:
    (layout.folder / "secret").write_text("no JSON, and not to be read")
    tag(layout, {"digest": "sha256:../../secret", "mediaType": IMAGE, "size": 3})
    assert prune(layout, 0) == Pruned(blobs=0, bytes=0, kept=1)


def test_nothing_goes_where_a_manifest_is_damaged(layout: Layout) -> None:
    blob(layout, b"lost")
    layout.put_manifest(b"{")
    with pytest.raises(InputError, match="a manifest is not usable as JSON") as caught:
        prune(layout, 0)
    assert caught.value.hint == "nothing is removed: untag it first"
    assert len(left(layout)) == 2


def test_what_cannot_be_removed_is_said(layout: Layout) -> None:
    tag(layout)
    folder = layout.folder / "blobs/sha256/folder"
    folder.mkdir()
    os.utime(folder, (1, 1))
    with pytest.raises(InputError, match="folder: cannot be removed: "):
        prune(layout, 0)
