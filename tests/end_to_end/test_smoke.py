"""The main job in half a minute: compile with gates, verify, run. `make check` runs it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from tests.end_to_end.test_main_job import MODEL, TEXT, optc


def test_a_model_is_compiled_proven_verified_and_run(tmp_path: Path) -> None:
    text, artifact = tmp_path / "text.jsonl", tmp_path / "artifact"
    with TEXT.open(encoding="utf-8") as lines:
        text.write_text("".join(islice(lines, 40)), encoding="utf-8")
    done = optc("compile", MODEL, "--recipe", "int8-fused", "-o", artifact, "--eval-text", text)
    verdicts = {gate["name"]: gate["passed"] for gate in done["gates"]}
    assert verdicts["kl_mean"] is True
    assert False not in verdicts.values()
    assert optc("verify", artifact)["ok"] is True
    found = optc("run", artifact, "--prompt", "def fib(n):", "--max-tokens", "8")
    assert (found["output_tokens"], found["finish_reason"]) == (8, "length")
