"""``--recipe auto`` on the trained example, with two recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

import optc
from optc.artifact.artifact import Artifact
from optc.errors import GateError

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "examples/models/pycode"
LADDER = ("int4-fast", "int8-fused")
#: Two compiles each; what chooses has quick tests of its own beside.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of the text that the model is judged on."""
    whole = (ROOT / "examples/text/code_heldout.jsonl").read_text("utf-8").splitlines()
    path = tmp_path_factory.mktemp("text") / "part.jsonl"
    path.write_text("\n".join(whole[:6]), "utf-8")
    return path


def test_the_best_recipe_that_holds_is_built_measured_and_runs(tmp_path: Path, text: Path) -> None:
    """int8 is tried first, and held; int4, which is faster, takes its place if it holds too."""
    output = tmp_path / "a"
    found = optc.compile(
        MODEL, "auto", output, gate="kl_mean=0.004", ladder=LADDER, eval_text=text, max_context=512
    )
    ladder = found.report()["ladder"]
    rungs = {one["recipe"]: one for one in ladder["rungs"]}
    assert list(rungs) == list(LADDER), "fewer bytes are predicted to be faster"
    assert rungs["int8-fused"]["outcome"] == "chosen"
    assert rungs["int8-fused"]["values"]["kl_mean"] <= 0.004
    fallen = rungs["int4-fast"]
    assert fallen["outcome"] == "fell"
    assert fallen["values"]["kl_mean"] > 0.004
    sizes = [one["predicted"]["artifact_bytes"] for one in rungs.values()]
    size = sum(entry.bytes for entry in found.manifest.files)
    assert sizes[1] == pytest.approx(size, rel=0.05)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    engine = optc.load(Artifact.open(output).path)
    try:
        greedy = optc.SamplingParams(temperature=0, max_tokens=4)
        assert engine.generate(["def fib(n):"], greedy)[0].text
    finally:
        engine.close()


def test_a_gate_that_nothing_holds_leaves_nothing(tmp_path: Path, text: Path) -> None:
    with pytest.raises(GateError) as failed:
        optc.compile(
            MODEL,
            "auto",
            tmp_path / "a",
            gate="kl_mean=1e-6",
            ladder=LADDER,
            eval_text=text,
            max_context=512,
        )
    assert "the nearest is int8-fused with kl_mean 0.00" in failed.value.message
    details = failed.value.details  # type: ignore[attr-defined]
    outcomes = {one["recipe"]: one["outcome"] for one in details["ladder"]["rungs"]}
    assert outcomes == {"int4-fast": "skipped", "int8-fused": "fell"}
    assert not list(tmp_path.iterdir())
