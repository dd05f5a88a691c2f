from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from optc.artifact import Artifact
from optc.artifact.manifest import digest_of
from optc.errors import ArtifactError
from tests.artifact.toy import toy_engine, write_toy

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
    more = {"costs": {"peak": "fp32", "kernels": {"k": costs}}, "pooled": True}
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
