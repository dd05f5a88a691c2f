"""int4 KV by its recipe, on a small trained model: its bounds, and the tokens of plain decoding."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import optc
from tests.end_to_end.test_main_job import ROOT, TEXT
from tests.support.cost import command

MODEL = ROOT / "examples/models/pycode-draft"
CALIBRATION = ROOT / "examples/text/code_calibration.jsonl"
PROMPTS = (
    "def add(first, second):\n    return first + second\n\n\ndef sub(first, second):\n    ",
    "import os\nimport sys\n\n\nclass Reader:\n    def __init__(self, path):\n        self.",
)


def compiled(folder: Path) -> Path:
    text, output = folder / "text.jsonl", folder / "artifact"
    text.write_text("".join(TEXT.read_text().splitlines(keepends=True)[:6]))
    result = command.optc(
        *("compile", MODEL, "--recipe", "kv-int4", "-o", output, "--eval-text", text),
        *("--calibration", CALIBRATION, "--set", "balance-keys.windows=4"),
        *("--set", "propagate-errors.windows=8"),
        *("--gate", "kl_mean=0.04", "--gate", "top1_agreement=0.84"),
        *("--gate", "kl_p99=none", "--gate", "perplexity_ratio=none"),
        *("--gate", "copy_nll_added=0.12"),
    )
    passed = {gate["name"]: gate["passed"] for gate in result["gates"]}
    assert passed["kl_mean"]
    assert passed["top1_agreement"]
    return output


def tokens(artifact: Path, chunked: bool, reused: bool, together: bool) -> list[tuple[int, ...]]:
    params = optc.SamplingParams(max_tokens=12, temperature=0.0)
    with optc.load(
        artifact,
        speculate="ngram" if chunked else "off",
        token_budget=7 if chunked else None,
        prefix_cache=reused,
        block_size=16,
        num_speculative_tokens=4 if chunked else None,
        verify="size",
    ) as engine:
        if reused:
            engine.generate(PROMPTS, optc.SamplingParams(max_tokens=1))
        if together:
            return [tuple(one.token_ids) for one in engine.generate(PROMPTS, params)]
        return [tuple(engine.submit(prompt, params).result().token_ids) for prompt in PROMPTS]


def test_it_keeps_its_bounds_and_gives_the_same_tokens_however_it_runs(tmp_path: Path) -> None:
    artifact = compiled(tmp_path)
    report = json.loads((artifact / "report.json").read_text())
    details = {one["name"]: one["details"] for one in report["passes"]}
    layers = details["kv-cache"]["full attention"]
    assert details["balance-keys"] == {"pairs scaled": layers}
    assert details["rotate-kv"]["values"] == layers
    plain = tokens(artifact, False, False, False)
    assert len(set(plain)) == len(PROMPTS)
    for ways in itertools.product((False, True), repeat=3):
        assert tokens(artifact, *ways) == plain, ways
