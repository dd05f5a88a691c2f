"""recipes, families, passes, backends, targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from optc.cli.commands import targets
from optc.proof.roofline.measured_targets import facts_of
from optc.system.hardware.machine import Machine
from optc.system.hardware.target import known_targets
from tests.cli.conftest import Optc
from tests.support.stub import StubBackend

ROOT = Path(__file__).resolve().parents[3]


def test_recipes(optc: Optc) -> None:
    recipes = {recipe["name"]: recipe for recipe in optc("recipes", "--json").json["recipes"]}
    assert {"bf16-fused", "fp32", "int4-fast", "int8-fused", "trt-int4"} <= set(recipes)
    assert recipes["int8-fused"]["gates"]["kl_mean"] == 0.0065
    assert "kl_mean 0.0065" in optc("recipes").out


def test_passes(optc: Optc) -> None:
    passes = {entry["name"]: entry for entry in optc("passes", "--json").json["passes"]}
    assert passes["quantize-weights"]["group"] == "quantize"
    assert passes["quantize-weights"]["options"]["bits"] == 8
    assert passes["kv-cache"]["description"]
    assert "quantize-weights" in optc("passes").out


def test_backends_say_why_they_cannot_build(optc: Optc, stub: StubBackend) -> None:
    entries = optc("backends", "--json").json["backends"]
    assert entries[0] == {"name": "stub", "available": True, "reason": ""}
    stub.reason = "no linker: install g++"
    assert optc("backends", "--json").json["backends"][0]["available"] is False
    assert "no linker: install g++" in optc("backends").out


def test_targets(optc: Optc) -> None:
    value = optc("targets", "--json").json
    targets = {entry["name"]: entry for entry in value["targets"]}
    cuda = [f"cuda:sm_{sm}" for sm in (80, 86, 89, 90, 100, 120)]
    cpus = ["native", "x86-64-v3", "x86-64-v3-vnni", "x86-64-v4-vnni", "x86-64-amx"]
    cpus += ["aarch64-dotprod", "aarch64-i8mm", "arm64-macos-dotprod", "arm64-macos-i8mm"]
    assert list(targets) == [*cpus, *cuda]
    assert targets["native"]["runs_here"] is True
    assert targets["native"]["features"] == value["host"]["features"]
    assert value["host"]["threads"] >= 1
    assert targets["cuda:sm_90"]["sm"] == [90]
    assert targets["cuda:sm_90"]["runs_here"] == (90 in value["host"]["sm"])
    assert targets["cuda:sm_90"]["measured"] == [{"machine": "H200", "date": "2026-11-27"}]
    assert targets["aarch64-i8mm"]["measured"] == []
    assert targets["aarch64-i8mm"]["tested"] == "run under qemu by its tests"
    assert targets["arm64-macos-i8mm"]["measured"] == []
    assert targets["arm64-macos-i8mm"]["tested"].endswith("never run on a Mac")
    assert targets["arm64-macos-i8mm"]["reason"] == "it needs macOS, this is Linux"
    out = " ".join(optc("targets").out.split())
    assert "x86-64-v3 needs avx2 f16c fma" in out
    assert f"this machine: {value['host']['cpu']}, {value['host']['threads']} threads" in out


def test_what_another_processor_needs_is_fetched(optc: Optc, stub: StubBackend) -> None:
    found = optc("targets", "--fetch", "aarch64-dotprod", "--json").json
    assert found["fetched"] == {"stub": "fetched for aarch64-dotprod"}
    assert optc("targets", "--fetch", "aarch64-i8mm").out == "stub: fetched for aarch64-i8mm\n"
    refused = optc("targets", "--fetch", "aarch64")
    assert refused.code == 2
    assert "--fetch: unknown target 'aarch64' (did you mean 'aarch64-" in refused.err


def test_machines_and_dates_of_targets_are_those_of_the_results() -> None:
    text = (ROOT / "benchmarks/results/README.md").read_text()
    rows = re.findall(r"\| ([^|]+) \| (2026-\d\d-\d\d) \|$", text, re.MULTILINE)
    newest = {machine: max(d for m, d in rows if m == machine) for machine, _ in rows}
    for target in known_targets().values():
        for one in facts_of(target).measured:
            assert newest[one.machine] == one.date, f"{target.name}: {one.machine}"


def test_a_reason_that_targets_share_stands_once_below(
    optc: Optc, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Machine(frozenset(("avx2", "f16c", "fma")), (), "no NVIDIA driver is installed")
    monkeypatch.setattr(targets, "this_machine", lambda: here)
    monkeypatch.setenv("COLUMNS", "60")
    out = optc("targets").out
    assert re.search(r"^ cuda:sm_80 +no ", out, re.MULTILINE)
    note = " ".join(out.partition("\n\n")[2].split())
    cuda = ", ".join(f"cuda:sm_{sm}" for sm in (80, 86, 89, 90, 100, 120))
    assert f"{cuda}: it needs a CUDA device: no NVIDIA driver is installed" in note
    assert out.count("it needs a CUDA") == 1
    assert "x86-64-v4-vnni: it needs avx2" not in note
    assert "x86-64-v4-vnni: it needs avx512_vnni" in note


def test_families(optc: Optc) -> None:
    value = optc("families", "--json").json
    families = {family["type"]: family for family in value["families"]}
    assert "tokens equal" in families["llama"]["proved"]
    assert {"tvm", "onnxruntime", "tensorrt", "tvm-cuda"} <= set(families["llama"]["engines"])
    assert families["bert"]["group"] == "encoder half"
    out = optc("families").out
    assert f"types of transformers {value['transformers']}: imported" in " ".join(out.split())
    assert "that transformers lists as causal" in " ".join(out.split())


def test_one_pass(optc: Optc) -> None:
    page = optc("passes", "quantize-weights", "--json").json
    assert {one["name"]: one["default"] for one in page["options"]}["bits"] == "8"
    shown = optc("passes", "quantize-weights").out
    assert "What it costs" in shown
    assert "If it finds nothing: a compile fails." in shown


def test_pages_of_all_passes(optc: Optc) -> None:
    out = optc("passes", "--markdown").out
    assert out.startswith("# Passes\n")
    assert "\n### kv-cache\n" in out
