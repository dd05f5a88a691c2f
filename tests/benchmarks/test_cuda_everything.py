from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.cuda import everything
from benchmarks.cuda.everything import Stage, run, run_all, stages
from benchmarks.cuda.outcome import Outcome
from benchmarks.cuda.page import page_of
from optc.errors import UnavailableError

PEAKS = {"read": 4e12, "bf16": 7e14, "int8": 9e14, "fp32": 5e13}
STEP = {"phase": "decode", "sequences": 8, "rows": 1, "context": 512}
OURS = {"best_ms": 1.2, "median_ms": 1.3, "mbu": 0.25, "mfu": 0.02}


def script(folder: Path, name: str, code: str) -> Stage:
    """A stage that is a module with ``code``, and gives the file NAME.out."""
    (folder / f"{name}.py").write_text(code)
    return Stage(name, (name,), folder / f"{name}.out")


def test_without_a_gpu_it_ends_with_status_3_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def missing() -> None:
        raise UnavailableError("it measures a GPU: there is none", where="benchmarks.cuda")

    monkeypatch.setattr(everything, "require_gpu", missing)
    assert everything.main([str(tmp_path / "new")]) == 3
    assert "it measures a GPU: there is none" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_stages_go_from_tests_to_speed_and_name_the_architecture(tmp_path: Path) -> None:
    found = stages(tmp_path, Path("model.gguf"), "llama-3.2-1b", 90)
    names = [stage.name for stage in found]
    assert len(set(names)) == len(names)
    assert names[:3] == ["tests", "gates-int8-fused", "gates-int4-fused"]
    assert names.index("shape") < names.index("artifact-int8-fused")
    compiles = [stage for stage in found if stage.name.startswith(("gates-int", "artifact-int"))]
    assert all("tvm-cuda:sm_90" in stage.command for stage in compiles)
    assert names[-4:-2] == ["artifact-in-order", "steps-in-order"]
    older = stages(tmp_path, Path("model.gguf"), "llama-3.2-1b", 89)
    assert "steps-in-order" not in {stage.name for stage in older}
    for recipe in everything.RECIPES:
        at = names.index(f"artifact-{recipe}")
        more = {f"{what}-{recipe}" for what in ("steps", "kernels", "serving")}
        assert set(names[at + 1 : at + 4]) == more


def test_a_stage_that_fails_or_is_cut_off_leaves_its_last_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(everything, "_LEAST", 0.0)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    write = f"open({str(tmp_path / 'optc_good.out')!r}, 'w')"
    outcomes = [
        run(script(tmp_path, "optc_good", write), 60),
        run(script(tmp_path, "optc_bad", "print('so'); raise SystemExit(4)"), 60),
        run(script(tmp_path, "optc_empty", "print('nothing written')"), 60),
        run(script(tmp_path, "optc_slow", "while True: pass"), 0.5),
    ]
    assert [one.state for one in outcomes] == ["done", "failed", "failed", "cut off"]
    assert outcomes[1].said == ("so",)


def test_no_stage_begins_without_time_and_a_second_run_does_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(everything, "gpu_name", lambda: "H200")
    ran: list[str] = []

    def fake(stage: Stage, seconds: float) -> Outcome:
        ran.append(stage.name)
        state = "done" if stage.name == "a" or seconds > 100 else "cut off"
        stage.gives.touch()
        return Outcome(stage.name, "", state)

    monkeypatch.setattr(everything, "run", fake)
    both = [Stage(name, (), tmp_path / name) for name in "ab"]
    assert [o.state for o in run_all(both, tmp_path, 1)] == ["done", "cut off"]
    assert [o.state for o in run_all(both, tmp_path, 5)] == ["done", "done"]
    assert ran == ["a", "b", "b"]
    kept = json.loads((tmp_path / "everything.json").read_text())
    assert [one["name"] for one in kept["stages"]] == ["a", "b"]
    monkeypatch.undo()
    assert run(both[0], 5.0).state == "no time"


def test_the_page_has_every_figure_and_what_failed(tmp_path: Path) -> None:
    torch = {"best_ms": 2.5, "median_ms": 2.6}
    step = {**STEP, "optc": OURS, "optc without graphs": OURS, "torch": torch}
    (tmp_path / "steps-int8-fused.json").write_text(json.dumps({"peaks": PEAKS, "steps": [step]}))
    kernel = {"kernel": "matmul", "calls": 16.0, "microseconds": 203.7}
    kernels = {"steps": [{**STEP, "kernels": [kernel]}]}
    (tmp_path / "kernels-int8-fused.json").write_text(json.dumps(kernels))
    (tmp_path / "serving-int8-fused.md").write_text("tokens a second: 5\n")
    outcomes = [
        Outcome("gates-int8-fused", "optc compile", "done", 30, ("kl_mean 0.001",)),
        Outcome("serving-int8-fused", "optc bench", "failed", 3, ("error: no room",)),
    ]
    page = page_of(tmp_path, "NVIDIA H200", outcomes)
    assert "| decode of 8 by 1, context 512 | 1.200 | 0.25 | 0.02 | 1.200 | 2.500 |" in page
    assert "| decode of 8 by 1, context 512 | matmul | 16 | 203.7 |" in page
    for text in ("reading 4.00 TB/s", "kl_mean 0.001", "error: no room", "tokens a second: 5"):
        assert text in page
    assert "| serving-int8-fused | failed | 3 | `optc bench` |" in page
