from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cuda import __main__ as benchmark
from benchmarks.cuda.steps import fitting, utilization
from optc import registry
from optc.errors import InputError
from optc.proof.bench.profile import Shape
from optc.proof.roofline.costs import KernelCost, StepCosts
from optc.runtime.executable.executable import KVGroup, StepInterface
from optc.system.hardware.machine import Machine
from tests.runtime.support.artifacts import ToyBackend, write_artifact

SPEC = StepInterface(8, 64, 32, 4, 4, 16, True, (KVGroup(0, ()),), ())


def test_without_a_gpu_it_ends_with_status_3_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    machine = Machine(frozenset(), (), "no NVIDIA driver is installed")
    monkeypatch.setattr(benchmark, "this_machine", lambda: machine)
    assert benchmark.main([str(tmp_path)]) == 3
    said = capsys.readouterr()
    assert "it measures a GPU: no NVIDIA driver is installed" in said.err
    assert not said.out


def test_an_artifact_for_other_devices_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(registry, "backend", {"toy": ToyBackend()}.__getitem__)
    artifact = write_artifact(tmp_path / "artifact")
    with pytest.raises(InputError, match="compile it with --backend tvm-cuda"):
        benchmark.measure(artifact.path, None, [], 1, {})


def test_shapes_that_a_step_cannot_have_are_left_out() -> None:
    shapes = [Shape("decode", n, 1, 32) for n in (1, 4, 8)] + [Shape("prefill", 1, 64, 64)]
    assert [shape.sequences for shape in fitting(SPEC, shapes)] == [1, 4]


def test_utilization_is_work_by_time_and_peak() -> None:
    kernel = KernelCost(1, "int8", {"1": 3e6, "kv0": 1e3}, {"T": 5e6})
    costs = StepCosts("int8", {"matmul": kernel})
    found = utilization(Shape("decode", 2, 1, 10), 1e-3, SPEC, costs, {"read": 1e10, "int8": 1e11})
    assert found["mbu"] == pytest.approx((3e6 + 2 * 10 * 1e3) / 1e-3 / 1e10)
    assert found["mfu"] == pytest.approx(2 * 5e6 / 1e-3 / 1e11)
