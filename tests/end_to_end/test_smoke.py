"""The main job in half a minute: compile with gates, verify, run. `make check` runs it."""

from __future__ import annotations

import pytest

from tests.end_to_end.test_main_job import gated, optc


def test_a_model_is_compiled_proven_verified_and_run(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    _, artifact, done = gated(tmp_path_factory, "int8-fused")
    verdicts = {gate["name"]: gate["passed"] for gate in done["gates"]}
    assert verdicts["kl_mean"] is True
    assert False not in verdicts.values()
    assert optc("verify", artifact)["ok"] is True
    found = optc("run", artifact, "--prompt", "def fib(n):", "--max-tokens", "8")
    assert (found["output_tokens"], found["finish_reason"]) == (8, "length")
