"""Figures of an artifact's bytes: what engines share, and what is there more than once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from optc.artifact.manifest import FileEntry
from optc.compiling.building.built_engine import BuiltEngine
from optc.compiling.stages.storage import (
    checkpoint_bytes,
    engine_reports,
    larger_than_source,
    storage_report,
)


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
    linked = storage_report(engines, FILES, 0, 5)
    assert linked == {"bytes": 117, "linked_bytes": 10, "duplicated_bytes": 0, "source_bytes": 5}
    copied = storage_report(engines, FILES, 10, 5)
    assert copied == {"bytes": 127, "linked_bytes": 0, "duplicated_bytes": 10, "source_bytes": 5}


def test_weights_that_engines_of_a_role_repack_are_duplicates_but_one() -> None:
    engines = [built("a", 100), built("b", 60), built("c", 30, role="draft")]
    assert storage_report(engines, FILES, 0, 5)["duplicated_bytes"] == 60


def test_engines_whose_weights_are_larger_than_the_checkpoint_are_named() -> None:
    engines = [built("a", 120), built("b", 110), built("c", 90), built("d", 500, role="draft")]
    (said,) = larger_than_source(engines, 100)
    assert said.startswith("the weights of engine a take 120 B, the checkpoint 100 B: ")
    assert larger_than_source(engines, 2000) == []


def test_a_checkpoint_takes_what_its_files_take(tmp_path: Path) -> None:
    target = tmp_path / "blobs"
    target.write_bytes(bytes(70))
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.safetensors").symlink_to(target)  # as in the Hugging Face cache
    (tmp_path / "model/other.bin").write_bytes(bytes(9))
    assert checkpoint_bytes(tmp_path / "model") == 70
