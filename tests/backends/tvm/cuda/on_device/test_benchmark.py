"""The benchmark's own steps on this machine's CUDA device."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cuda.steps import EngineSteps, fitting, utilization
from optc.backends.tvm import BACKEND
from optc.bench.profile import Shape
from optc.machine import this_machine
from tests.backends.tvm.engine_driver import INT8_KV, SHAPE, build


def test_steps_of_every_shape_run_and_have_a_utilization(tmp_path: Path) -> None:
    built = build(tmp_path, SHAPE, INT8_KV, f"cuda:sm_{this_machine().sm[0]}")
    engine = built.load()
    costs = BACKEND.step_costs(built.build.backend_data)
    shapes = [Shape("decode", 1, 1, 50), Shape("decode", 4, 1, 50), Shape("prefill", 1, 50, 50)]
    assert fitting(engine.spec, shapes) == shapes
    for shape in shapes:
        seconds = EngineSteps(engine, shape).time()
        figures = utilization(shape, seconds, engine.spec, costs, {"read": 1e15, "int8": 1e18})
        assert 0 < figures["mbu"] < 1
        assert 0 < figures["mfu"] < 1
    engine.close()
