"""Figures of an artifact's bytes: what engines share, and what is there more than once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from optc.artifact import FileEntry
from optc.driver.compiling.built_engine import BuiltEngine
from optc.driver.compiling.storage import engine_reports, storage_report


def built(name: str, weight_bytes: int, *, role: str = "target", weights: str = "") -> BuiltEngine:
    folder = f"engines/{name}"
    entry = SimpleNamespace(
        name=name,
        role=role,
        backend="stub",
        target=SimpleNamespace(name="native"),
        folder=folder,
        files=("engine", "weights") if weight_bytes else ("engine",),
    )
    value: Any = SimpleNamespace(
        entry=entry,
        build=SimpleNamespace(weight_bytes=weight_bytes, report={"made": name}),
        weights=SimpleNamespace(folder=weights or folder),
        seconds=2.0,
    )
    return cast(BuiltEngine, value)


def files(**sizes: tuple[int, str]) -> list[FileEntry]:
    return [
        FileEntry(f"engines/{path.replace('_', '/')}", size, sha)
        for path, (size, sha) in sizes.items()
    ]


FILES = files(a_engine=(10, "x"), a_weights=(100, "w"), b_engine=(10, "x"), c_engine=(7, "z"))


def test_each_engine_has_its_own_files_and_the_weights_that_it_reads() -> None:
    engines = [built("a", 100), built("b", 0, weights="engines/a")]
    first, second = engine_reports(engines, FILES)
    assert first == {
        "name": "a",
        "role": "target",
        "backend": "stub",
        "target": "native",
        "bytes": 110,
        "weight_bytes": 100,
        "weights_of": "a",
        "seconds": 2.0,
        "build": {"made": "a"},
    }
    assert (second["bytes"], second["weight_bytes"], second["weights_of"]) == (10, 0, "a")


def test_equal_files_are_linked_or_duplicated() -> None:
    engines = [built("a", 100), built("b", 0)]
    linked = storage_report(engines, FILES, 0)
    assert linked == {"bytes": 117, "linked_bytes": 10, "duplicated_bytes": 0}
    copied = storage_report(engines, FILES, 10)
    assert copied == {"bytes": 127, "linked_bytes": 0, "duplicated_bytes": 10}


def test_weights_that_engines_of_a_role_repack_are_duplicates_but_one() -> None:
    engines = [built("a", 100), built("b", 60), built("c", 30, role="draft")]
    assert storage_report(engines, FILES, 0)["duplicated_bytes"] == 60
