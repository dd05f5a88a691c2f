"""Steps as CUDA graphs on this machine's CUDA device: the same bits, in bounded memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from optc.backends.tvm_cuda.loaded import capture
from optc.backends.tvm_cuda.loaded import graphs as graphs_module
from optc.backends.tvm_cuda.loaded.capture import NotCapturedError
from optc.backends.tvm_cuda.loaded.runtime import open_cudart
from optc.system.hardware.machine import this_machine
from tests.backends.tvm.engine_driver import INT8_KV, SHAPE, Engine, EngineDriver, build_once

TOKENS = np.random.default_rng(5).integers(0, SHAPE.vocab, (3, 200)).tolist()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    target = f"cuda:sm_{this_machine().sm[0]}"
    return build_once(tmp_path_factory, "cuda-int8-kv8", INT8_KV, target)


def history() -> list[dict[int, int]]:
    """New rows of each sequence: prefill, few shapes in turn while tables grow, a newcomer."""
    decode = [{0: 1}, {0: 1, 1: 1}, {1: 3, 0: 1}, {0: 1, 1: 1}, {0: 1}]
    return [{0: 5, 1: 11}, *decode * 8, {2: 70}, {0: 1, 1: 1, 2: 1}, *decode * 2]


def run(driver: EngineDriver) -> list[Any]:
    done, logits = dict.fromkeys(range(3), 0), []
    for counts in history():
        rows = {s: TOKENS[s][done[s] : done[s] + n] for s, n in counts.items()}
        done.update({s: done[s] + n for s, n in counts.items()})
        logits.append(driver.step(rows))
    return logits


def test_graphs_have_the_bits_of_kernels_one_by_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: Any = engine.load()
    loaded.graphs.enabled = False
    expected = run(EngineDriver(loaded))
    assert loaded.graphs.launched == 0
    monkeypatch.setattr(graphs_module, "PATIENCE", 3)
    loaded.graphs.enabled = True
    for _ in range(2):  # the second time with other pools
        before = loaded.graphs.launched
        for ours, theirs in zip(run(EngineDriver(loaded)), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert loaded.graphs.launched > before + 25
    assert loaded.graphs.enabled
    loaded.close()


def test_inputs_of_a_step_are_copied_at_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a graph runs, whose inputs lie where they lay, while block tables grow."""
    copies = getattr(open_cudart(), "cudaEmulatorCopies", None)
    if copies is None:
        pytest.skip("only the emulator counts copies")
    loaded: Any = engine.load()
    driver = EngineDriver(loaded)
    monkeypatch.setattr(graphs_module, "PATIENCE", 3)
    driver.step({0: TOKENS[0][:30], 1: TOKENS[1][:3]})
    for token in range(30, 90):
        before = [copies(kind) for kind in (1, 2)]
        launched = loaded.graphs.launched
        driver.step({0: [TOKENS[0][token]], 1: [TOKENS[1][token]]})
        captured = token == 30 + 2 and not launched
        assert captured or [copies(kind) for kind in (1, 2)] == [before[0] + 1, before[1] + 1]
    assert loaded.graphs.launched > 40
    loaded.close()


def test_kernels_start_before_those_before_them_have_ended(engine: Engine) -> None:
    """The emulator runs a kernel as late as the next one allows, which waits before it reads."""
    early = getattr(open_cudart(), "cudaEmulatorEarly", None)
    if early is None:
        pytest.skip("only the emulator counts launches")
    loaded: Any = engine.load()
    loaded.graphs.enabled = False
    driver = EngineDriver(loaded)
    before = early()
    driver.step({0: TOKENS[0][:5]})
    kernels = engine.build.report["calls"]["step"]
    # every other one is kept back; some calls are several kernels, and TVM's own start in turn
    assert early() - before > 0.35 * kernels
    loaded.close()


def test_few_shapes_are_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes that fall out are captured again; results stay the same."""
    loaded: Any = engine.load()
    loaded.graphs.enabled = False
    expected = run(EngineDriver(loaded))
    monkeypatch.setattr(graphs_module, "PATIENCE", 1)
    monkeypatch.setattr(graphs_module, "MAX_SHAPES", 2)
    loaded.graphs.enabled = True
    for ours, theirs in zip(run(EngineDriver(loaded)), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.graphs.launched
    loaded.close()


def free_memory() -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert not open_cudart().cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    return free.value


def test_memory_is_that_of_the_largest_step(engine: Engine) -> None:
    """Other numbers of rows with logits take none; inputs take a little for each shape."""
    loaded = engine.load()
    EngineDriver(loaded).step({0: TOKENS[0][:90]})

    def taken(rows_with_logits: Callable[[int], int]) -> int:
        before = free_memory()
        for count in range(1, 32):
            wanted = list(range(rows_with_logits(count)))
            EngineDriver(loaded).step({0: TOKENS[0][: 2 * count], 1: TOKENS[1][:3]}, wanted)
        return before - free_memory()

    inputs = taken(lambda count: 1)
    assert taken(lambda count: count + 1) <= inputs
    loaded.close()


def test_where_capturing_fails_steps_go_on_without(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: Any = engine.load()
    expected = run(EngineDriver(loaded))

    def refuse(*_: object) -> None:
        raise NotCapturedError("begin: out of luck")

    monkeypatch.setattr(capture.Capture, "graph_of", refuse)
    monkeypatch.setattr(graphs_module, "PATIENCE", 2)
    with pytest.warns(RuntimeWarning, match="steps run without CUDA graphs: begin: out of luck"):
        found = run(EngineDriver(loaded))
    assert not loaded.graphs.enabled
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    loaded.close()


def test_what_a_graph_cannot_contain_is_said(engine: Engine) -> None:
    loaded: Any = engine.load()
    device = loaded._device
    captures = loaded.graphs._open_capture()

    def allocate() -> None:
        device.empty((1 << 20,), "uint8")

    with pytest.raises(NotCapturedError):
        captures.graph_of(allocate)
    assert run(EngineDriver(loaded))  # and nothing is left of it
    loaded.close()
