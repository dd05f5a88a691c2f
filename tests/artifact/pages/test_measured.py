"""Benchmarks are read from their JSON, and what is none is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from optc.artifact.pages.measured import read_measured
from optc.errors import ArtifactError
from tests.artifact.pages.sample import BENCH, CEILINGS


def test_a_profile() -> None:
    found = read_measured(BENCH, "b.json")
    assert (found.engine, found.target) == ("target", "native")
    assert found.ceilings is not None
    assert (found.ceilings.read, found.ceilings.peaks) == (50.0, {"int8": 1000.0, "fp32": 200.0})
    labels = ["decode, 1 sequence", "decode, 8 sequences", "prefill, 512 tokens"]
    assert [step.label for step in found.steps] == labels
    assert (found.steps[0].bytes, found.steps[0].ops) == (8e6, 15e6)
    assert found.steps[0].kernels[0].label == "int_matmul_0 384x96"


def test_a_benchmark_without_profile_and_ceilings() -> None:
    found = read_measured({"engine": None, "target": None, "ceilings": None, "results": []}, "b")
    assert (found.engine, found.ceilings, found.steps) == ("", None, ())


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("profile", 0, "step_ms"), 0, "b.json: profile[0].step_ms: expected 'float' > 0.0"),
        (("profile", 0, "kernels", 1, "ms"), -1, "kernels[1].ms: expected 'float' >= 0.0"),
        (
            ("profile", 0, "kernels", 1, "bytes"),
            None,
            "[1].bytes: expected 'float', got 'null'",
        ),
        (("profile", 0, "rows"), 0, "profile[0].rows: expected 'int' >= 1"),
        (
            ("ceilings",),
            {"read_gb_per_s": {"best": 1.0}},
            "it lacks read_gb_per_s, or a peak of",
        ),
        (("ceilings", "read_gb_per_s"), 7, "b.json: ceilings: [...]: expected 'object'"),
        (("engine",), "target", "engine: expected 'object | null', got 'str'"),
    ],
)
def test_what_is_wrong(path: tuple[Any, ...], value: Any, message: str) -> None:
    found: Any = copy.deepcopy({**BENCH, "ceilings": dict(CEILINGS)})
    holder = found
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    with pytest.raises(ArtifactError) as caught:
        read_measured(found, "b.json")
    assert message in caught.value.render()
