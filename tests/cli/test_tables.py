"""Tables that several commands print."""

from __future__ import annotations

from typing import Any

import pytest

from optc.cli.output import show
from optc.cli.tables import (
    activations_tables,
    contexts_tables,
    engines_table,
    formats_tables,
    gates_tables,
    passes_table,
)


def shown(capsys: pytest.CaptureFixture[str], *tables: Any) -> list[list[str]]:
    """The words of each line that is not empty or a rule."""
    show(*tables)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    return [words for words in lines if words and "─" not in words[0]]


def gate(name: str, **more: Any) -> dict[str, Any]:
    plain = {"value": None, "bound": 0.5, "passed": None, "measured_on": "none", "reason": ""}
    return {"name": name, "engine": "a", **plain, **more}


def test_passes(capsys: pytest.CaptureFixture[str]) -> None:
    passes = [
        {"name": "fuse-qkv", "count": 2, "seconds": 0.1234, "details": {"full": 1, "window": 3}},
        {"name": "kv-cache", "count": 0, "seconds": 0.0},
    ]
    assert shown(capsys, passes_table(passes))[2:] == [
        ["fuse-qkv", "2", "0.12", "full", "1,", "window", "3"],
        ["kv-cache", "0", "0.00"],
    ]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"from_cache": True}, "(from the cache)"),
        ({"resumed_after_blocks": 3}, "(3 blocks from the cache)"),
        ({"resumed_parts": 4}, "(4 parts from the cache)"),
        ({}, ""),
    ],
)
def test_passes_say_what_was_found_again(
    facts: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"name": "calibrate", "count": 2, "seconds": 0.5, "details": {"linear": 2}}
    (row,) = shown(capsys, passes_table([entry | {"facts": facts}]))[2:]
    assert row == ["calibrate", "2", "0.50", "linear", "2", *said.split()]


def test_formats(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"tensors": "qkv", "format": "3g64", "bits": 3.3, "kl": 0.00123456, "measured": True},
        {"tensors": "head", "format": "8", "bits": 8.1, "kl": 0.0, "measured": False},
    ]
    facts = {
        "chosen": "formats",
        "budget": "1MB",
        "reached": "0.998MB",
        "bits_per_weight": 4.5,
        "tensors": rows,
    }
    facts |= {"kl_sum_of_parts": 0.00123456, "kl_measured": 0.0015}
    found = formats_tables([{"name": "kv-cache"}, {"name": "allocate-bits", "facts": facts}])
    assert shown(capsys, *found) == [
        ["formats", "within", "1MB:", "0.998MB"],
        ["weights", "format", "bits", "KL", "alone"],
        ["qkv", "3g64", "3.30", "0.001235", "measured"],
        ["head", "8", "8.10", "0.000000", "from", "its", "error"],
        ["sum", "4.50", "0.001235"],
        ["together", "0.001500", "measured"],
    ]
    assert formats_tables([{"name": "kv-cache"}]) == []
    assert formats_tables([{"name": "allocate-bits", "facts": {}}]) == []


def test_activations(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"tensors": "down", "bits": 16, "kl": 0.00123456, "measured": True},
        {"tensors": "head", "bits": 8, "kl": 0.0002, "measured": False},
    ]
    facts = {
        "chosen": "activations",
        "budget": 1.3,
        "reached": 1.2345,
        "tensors": rows,
        "kl_measured": 0.00021,
    }
    facts |= {"kl_sum_of_8_bits": 0.00143456, "kl_sum_of_parts": 0.0002}
    found = activations_tables([{"name": "allocate-activations", "facts": facts}])
    assert shown(capsys, *found) == [
        ["activations,", "multiply-adds", "within", "1.3:", "1.23"],
        ["read", "by", "bits", "KL", "of", "8", "bits"],
        ["down", "16", "0.001235", "measured"],
        ["head", "8", "0.000200", "of", "the", "nearest", "alike"],
        ["sum,", "8", "bits", "everywhere", "0.001435"],
        ["sum,", "as", "chosen", "0.000200"],
        ["together,", "as", "chosen", "0.000210", "measured"],
    ]
    assert formats_tables([{"name": "allocate-activations", "facts": facts}]) == []
    unmeasured = {"name": "allocate-activations", "facts": {"budget": 2.0, "reached": 2.0}}
    assert activations_tables([unmeasured]) == []


def test_engines(capsys: pytest.CaptureFixture[str]) -> None:
    own = {"name": "a", "bytes": 4096, "weight_bytes": 2048, "weights_of": "a", "seconds": 1.26}
    other = {**own, "name": "b", "bytes": 10, "weight_bytes": 0}
    both = other | {"name": "c", "weight_bytes": 1024}
    assert shown(capsys, engines_table([own, other, both]))[2:] == [
        ["a", "4.0", "KiB", "2.0", "KiB", "1.3"],
        ["b", "10", "B", "of", "a", "1.3"],
        ["c", "10", "B", "1.0", "KiB", "and", "of", "a", "1.3"],
    ]


def test_gates(capsys: pytest.CaptureFixture[str]) -> None:
    gates = [
        gate("kl_mean", value=0.123456, passed=True, measured_on="engine"),
        gate("kl_p99", value=2.0, passed=False, measured_on="engine", reason="too much"),
        gate("perplexity", value=7.0, bound=None, measured_on="engine"),
        gate("top1_agreement", reason="no GPU"),
        gate("perplexity_ratio", reason="no GPU"),
        gate("kl_mean", value=0.1, passed=True, measured_on="lowered-onnx"),
        gate("kl_p99", value=0.9, passed=False, measured_on="lowered-onnx", reason="above"),
    ]
    lines = shown(capsys, *gates_tables(gates))
    assert lines[0] == ["gates"]
    assert [" ".join(words) for words in lines[2:]] == [
        "kl_mean 0.1235 0.5 passed",
        "kl_p99 2 0.5 FAILED too much",
        "perplexity 7 - -",
        "top1_agreement - 0.5 - no GPU",
        'perplexity_ratio - 0.5 - "',
        "kl_mean 0.1 0.5 passed on the lowered ONNX",
        "kl_p99 0.9 0.5 FAILED on the lowered ONNX: above",
    ]


def test_several_engines_have_a_table_each(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, *gates_tables([gate("kl_mean"), gate("kl_mean", engine="b")]))
    assert [words for words in lines if words[0] == "gates"] == [
        ["gates", "of", "a"],
        ["gates", "of", "b"],
    ]
    assert gates_tables([]) == []


def test_contexts_of_largest_divergence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    best = {"token": 5, "reference_probability": 0.75, "engine_probability": 0.126}
    entry = {
        "kl": 1.23456,
        "context": "a" * 99 + "\x1b[1m",
        "next": {"token": 7, "text": None},
        "reference": {**best, "text": "\n"},
        "engine": {**best, "text": None, "reference_probability": None},
    }
    lines = shown(capsys, *contexts_tables({"e": {"worst_contexts": [entry]}, "f": {"tokens": 1}}))
    assert lines[0] == ["largest", "divergence"]
    cells = ["1.235", f"'{'a' * 36}\\x1b[1m'", "#7", "'\\n'", "0.75", "(engine", "0.13)"]
    assert lines[2:] == [[*cells, "#5", "0.13", "(reference", "-)"]]
    several = {"e": {"worst_contexts": [entry], "lowered-onnx": {"worst_contexts": [entry]}}}
    titles = [words for words in shown(capsys, *contexts_tables(several)) if "largest" in words]
    assert [" ".join(words) for words in titles] == [
        "largest divergence of e",
        "largest divergence of e (on the lowered ONNX)",
    ]
