"""What a compile and a benchmark leave, made up: a report with all parts, and a profile."""

from __future__ import annotations

import copy
from typing import Any

from optc.artifact.pages.measured import read_measured
from optc.artifact.pages.sections.subject import Subject
from tests.artifact.toy import toy_manifest


def token(text: str | None, reference: float = 0.9, engine: float = 0.1) -> dict[str, Any]:
    chances = {"reference_probability": reference, "engine_probability": engine}
    return {"token": 5, "text": text, **chances}


def context(kl: float, text: str | None = "def f(x):\n    return") -> dict[str, Any]:
    return {
        "kl": kl,
        "window": 2,
        "position": 17,
        "context": text,
        "next": {"token": 7, "text": " x"},
        "reference": token(" x"),
        "engine": token("\n", 0.05, 0.8),
    }


def gate(
    name: str, value: float | None, bound: float | None, passed: bool | None
) -> dict[str, Any]:
    more = {"measured_on": "engine", "reason": "", "engine": "target"}
    return {"name": name, "value": value, "bound": bound, "passed": passed, **more}


def distribution(*counts: int, first: float = 1e-4) -> dict[str, Any]:
    quantiles = {"p50": 2e-4, "p90": 3e-3, "p99": 4e-2, "p99_9": 0.5}
    return {"first": first, "bins_per_decade": 2, "counts": list(counts), **quantiles}


def step(phase: str = "decode", sequences: int = 1, rows: int = 1) -> dict[str, Any]:
    def kernel(name: str, shape: str, ms: float, moved: float, ops: float) -> dict[str, Any]:
        roof = {"roof_ms": ms / 2 if moved else 0.0}
        return {
            "name": name,
            "shape": shape,
            "calls": 6,
            "ms": ms,
            "bytes": moved,
            "ops": ops,
            **roof,
        }

    kernels = [
        kernel("int_matmul_0", "384x96", 0.3, 4e6, 8e6),
        kernel("int_matmul_1", "96x384", 0.2, 3e6, 6e6),
        kernel("attention_2", "", 0.25, 1e6, 1e6),
        kernel("rms_norm_3", "", 0.05, 0, 0),
    ]
    shape = {"phase": phase, "sequences": sequences, "rows": rows, "context": 512}
    return {**shape, "step_ms": 1.0, "kernel_ms": 0.8, "roof_ms": 0.375, "kernels": kernels}


CEILINGS = {
    "read_bytes": 11_000_000,
    "read_gb_per_s": {"best": 50.0, "median": 45.0},
    "int8_gop_per_s": {"best": 1000.0, "median": 990.0},
    "fp32_gop_per_s": {"best": 200.0, "median": 190.0},
}
BENCH: dict[str, Any] = {
    "engine": {"name": "target"},
    "target": "native",
    "ceilings": CEILINGS,
    "profile": [step(), step("decode", 8, 8), step("prefill", 1, 512)],
}


def option(name: str, reference: float, engine: float | None) -> dict[str, Any]:
    chances = {"reference_probability": reference, "engine_probability": engine}
    return {"option": name, **chances}


def decided(about: str, margin: float, left: float | None) -> dict[str, Any]:
    return {
        "kind": "value",
        "about": about,
        "where": "talk.jsonl:7",
        "context": '{"unit": "',
        "flipped": left is None or left < 0,
        "margin": margin,
        "engine_margin": left,
        "taken": "celsius",
        "reference": option("celsius", 0.8, 0.2),
        "engine": option("fahrenheit", 0.1, None if left is None else 0.6),
    }


DECISIONS: dict[str, Any] = {
    "count": 120,
    "firm": 100,
    "flips": 2,
    "flips_of_any_margin": 4,
    "margin_factor": 0.71,
    "margin_factor_p50": 0.97,
    "by_kind": {
        "value": {"count": 80, "firm": 70, "flips": 2},
        "end": {"count": 40, "firm": 30, "flips": 0},
    },
    "worst": [decided("get_weather.unit", 1.9, -0.4), decided("", 0.6, None)],
}


def rung(recipe: str, outcome: str, why: str, **measured: Any) -> dict[str, Any]:
    predicted = {
        "decode_tokens_per_s": 120.5,
        "prefill_tokens_per_s": 3000.0,
        "artifact_bytes": 5 << 20,
        "memory_bytes": 9 << 20,
        "weight_bytes": 4 << 20,
        "compile_s": 60.0,
    }
    more = {"description": "a recipe", "predicted": predicted, "promised": {"kl_mean": 0.001}}
    none = {"windows": 0, "values": {}, "seconds": 0.0}
    return {"recipe": recipe, "outcome": outcome, "why": why, **more, **none, **measured}


LADDER: dict[str, Any] = {
    "objective": "decode",
    "gates": {"kl_mean": 0.01, "top1_agreement": 0.9},
    "default_gates": False,
    "chosen": "exact",
    "rungs": [
        rung("tiny", "skipped", "promises less than small, which fell"),
        rung("small", "fell", "kl_mean 0.5", windows=4, values={"kl_mean": 0.5}, seconds=90.0),
        rung("exact", "chosen", "", windows=60, values={"kl_mean": 0.002}, seconds=70.0),
        rung("slow", "not tried", "a better one held"),
        {"recipe": "odd", "outcome": "left out", "why": "it suits nobody"},
    ],
}
REPORT: dict[str, Any] = {
    "schema": "optc.report.v1",
    "gates": [
        gate("kl_mean", 0.0009, 0.003, True),
        gate("top1_agreement", 0.9, 0.97, False),
        gate("decode_speedup", 3.0, 2.5, None),
        gate("of_another_release", 1.0, None, None),
    ],
    "evaluation": {
        "target": {
            "tokens": 7680,
            "kl_mean": 0.0009,
            "kl_p99": 0.04,
            "kl_max": 2.5,
            "top1_agreement": 0.98,
            "top5_agreement": 0.999,
            "perplexity": 4.01,
            "reference_perplexity": 4.0,
            "kl_distribution": distribution(0, 3, 10, 0, 4, 1, 0),
            "worst_contexts": [context(2.5), context(1.5, None)],
            "answers": {"tokens": 90, "decisions": DECISIONS},
        }
    },
    "passes": [
        {
            "name": "kv-cache",
            "count": 2,
            "seconds": 0.25,
            "details": {"full": 2},
            "skipped": ["a node: it was the nearest miss"],
            "facts": {"layers": 2},
            "warning": "",
        },
        {
            "name": "fuse-rotary",
            "count": 0,
            "seconds": 0.0,
            "details": {},
            "skipped": [],
            "facts": {},
            "warning": "it should have found a rotary embedding",
        },
    ],
    "tensors": [
        {"kind": "embedding and head", "tensors": 1, "bytes": 3 << 20, "scale_bytes": 1 << 20},
        {"kind": "feed-forward", "tensors": 6, "bytes": 9 << 20, "scale_bytes": 0},
    ],
    "bisect": {"sqnr_by_layer": [40.0, None, 31.5, 35.0]},
    "ladder": LADDER,
    "stages": {"import": 4.0, "build": 30.0},
    "seconds": 35.0,
    "peak_anon_bytes": 1 << 30,
    "machine": {"cpu": "A processor", "features": ["avx2", "fma"], "memory_bytes": 1 << 34},
    "warnings": ["a warning of the compile"],
}


def report(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(REPORT), **changes}


def subject(found: dict[str, Any] | None = None, *, measured: bool = True) -> Subject:
    return Subject(
        toy_manifest(()),
        report() if found is None else found,
        read_measured(BENCH, "bench.json") if measured else None,
        "" if measured else "Not measured: no engine runs here.",
    )
