"""Engines against the dense model, in whatever order rows come and wherever sequences lie."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optc.backends.onnxruntime import providers
from optc.backends.onnxruntime.executable import SlotExecutable
from optc.backends.onnxruntime.memory import DeviceMemory
from optc.errors import InputError
from tests.backends.onnxruntime.counting_device import CountingDevice
from tests.backends.onnxruntime.engines import FAMILIES, Driver, open_engine
from tests.support.families import FUSED, model_after
from tests.support.models import dense_model
from tests.support.ragged import RaggedDriver, run_dense


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("spec", ["kv-cache", FUSED])
def test_chunks_and_batches_equal_the_dense_model(family: str, spec: str, tmp_path: Path) -> None:
    shape = FAMILIES[family]
    rng = np.random.default_rng(3)
    a, b, c = rng.integers(0, shape.vocab, (3, 30)).tolist()
    driver = Driver(open_engine(shape, spec, tmp_path))
    got: dict[int, list[np.ndarray]] = {0: [], 1: [], 2: []}  # type: ignore[type-arg]
    steps: list[tuple[dict[int, list[int]], dict[int, int]]] = [
        ({0: a[:7]}, {0: 3}),
        ({1: b[:1], 0: a[7:8]}, {1: 0}),  # first token of one, next of another
        ({0: a[8:9], 2: c[:5], 1: b[1:2]}, {2: 1}),
        ({2: c[5:6], 0: a[9:12], 1: b[2:4]}, {}),
        ({1: b[4:5], 2: c[6:7], 0: a[12:13]}, {}),
    ]
    for rows, slots in steps:
        logits = driver.step(rows, slots)
        for s, tokens in rows.items():
            got[s].append(logits[: len(tokens)])
            logits = logits[len(tokens) :]
    for s, tokens in ((0, a[:13]), (1, b[:5]), (2, c[:7])):
        want = run_dense(dense_model(shape), tokens)
        np.testing.assert_allclose(np.concatenate(got[s]), want, rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("quantize-weights{bits=8},fuse-norm-quantize", 0.02),
        ("quantize-weights{bits=8,group_size=32,symmetric=false},fuse-norm-quantize", 0.02),
        ("quantize-weights{bits=4,group_size=32,symmetric=false},fuse-norm-quantize", 0.02),
        ("quantize-weights{bits=4,group_size=32,head_bits=4}", 0.02),
        ("cast-weights", 0.01),
    ],
)
@pytest.mark.parametrize("family", ["llama", "gemma2", "olmo2", "starcoder2"])
def test_quantized_engines_are_near_the_ragged_step(
    family: str, options: str, error: float, tmp_path: Path
) -> None:
    """The same weights; activations are quantized by blocks instead of by token."""
    shape, spec = FAMILIES[family], f"{FUSED},{options}"
    tokens = list(range(20))
    model = model_after(spec, shape)
    want = RaggedDriver(model).step({0: tokens})
    got = Driver(open_engine(shape, spec, tmp_path)).step({0: tokens}, {0: 2})
    assert np.linalg.norm(got - want) < error * np.linalg.norm(want)


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_traffic_equals_the_dense_model(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Sequences begin, pause, take back rows and end in any slot, idle ones between them."""
    shape = FAMILIES["llama"]
    engine = open_engine(shape, "kv-cache", tmp_path_factory.mktemp("engine"))
    driver = Driver(engine, slots=5, tokens=24)
    dense = dense_model(shape)
    texts = np.random.default_rng(0).integers(0, shape.vocab, (40, 24)).tolist()
    free, running, made = set(range(5)), [], 0
    for _ in range(data.draw(st.integers(2, 6))):
        begun = {}
        for slot in sorted(free):
            if data.draw(st.booleans()):
                begun[made], running = slot, [*running, made]
                free.remove(slot)
                made += 1
        rows = {}
        for s in running:
            room = 24 - driver.lengths.get(s, 0)
            count = min(room, data.draw(st.sampled_from([0, 1, 1, 2, 5])))
            if s in begun:
                count = max(count, 1)
            if count:
                start = driver.lengths.get(s, 0)
                rows[s] = texts[s][start : start + count]
        if not rows:
            continue
        logits = driver.step(rows, begun)
        for s, tokens in rows.items():
            end = driver.lengths[s]
            want = run_dense(dense, texts[s][:end])[end - len(tokens) :]
            np.testing.assert_allclose(logits[: len(tokens)], want, rtol=1e-4, atol=3e-5)
            logits = logits[len(tokens) :]
        for s in list(running):
            if driver.lengths.get(s, 0) > 1 and data.draw(st.booleans()):
                driver.lengths[s] -= 1  # a rejected draft
            if data.draw(st.integers(0, 4)) == 0 and s in driver.slots:
                running.remove(s)
                free.add(driver.slots[s])


def test_a_slot_is_full_to_its_last_token(tmp_path: Path) -> None:
    """Its neighbours go on and do not touch it."""
    shape = FAMILIES["llama"]
    driver = Driver(open_engine(shape, FUSED, tmp_path), slots=3, tokens=8)
    a, b, c = np.random.default_rng(1).integers(0, shape.vocab, (3, 8)).tolist()
    driver.step({0: a}, {0: 1})
    driver.step({1: b[:1], 2: c[:1]}, {1: 0, 2: 2})
    driver.step({1: b[1:2], 2: c[1:2]}, {})
    driver.lengths[0] = 7
    want = run_dense(dense_model(shape), a)
    np.testing.assert_allclose(driver.step({0: a[7:]}, {}), want[7:], rtol=1e-4, atol=3e-5)


def test_wanted_rows_in_any_order(tmp_path: Path) -> None:
    shape = FAMILIES["llama"]
    driver = Driver(open_engine(shape, FUSED, tmp_path))
    rows = {0: [1, 2, 3], 1: [4], 2: [5, 6]}
    slots = {0: 2, 1: 3, 2: 0}
    everything = driver.step(rows, slots)
    some = Driver(driver.engine).step(rows, slots, wanted=[5, 0, 3, 2])
    np.testing.assert_allclose(some, everything[[5, 0, 3, 2]], rtol=1e-5, atol=1e-6)


def test_what_a_slot_holds_can_be_moved(tmp_path: Path) -> None:
    shape = FAMILIES["llama"]
    engine = open_engine(shape, FUSED, tmp_path)
    driver = Driver(engine)
    tokens = list(range(10))
    want = run_dense(dense_model(shape), [*tokens, 7])[-1:]
    driver.step({0: tokens}, {0: 1})
    # one after the other, in two runs
    source = np.array([64 * 1 + i for i in range(10)], np.int32)
    engine.copy_kv(0, source, source + 64)
    driver.slots[0] = 2
    np.testing.assert_allclose(driver.step({0: [7]}, {}), want, rtol=1e-4, atol=3e-5)
    kept = engine.read_blocks(0, np.array([2], np.int32))
    engine.write_blocks(0, np.array([0], np.int32), kept)
    driver.slots[0], driver.lengths[0] = 0, 10
    np.testing.assert_allclose(driver.step({0: [7]}, {}), want, rtol=1e-4, atol=3e-5)
    with pytest.raises(InputError, match="slots must lie within 0 and 255"):
        engine.copy_kv(0, np.array([0], np.int32), np.array([256], np.int32))


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    engine = open_engine(FAMILIES["llama"], FUSED, tmp_path)
    with pytest.raises(InputError, match="no KV slots: call allocate_kv first"):
        Driver.step(_unallocated(engine), {0: [1]}, {0: 0})
    with pytest.raises(InputError, match="slots of 65 tokens"):
        engine.allocate_kv((1,), 65)
    with pytest.raises(InputError, match="for one group of slots"):
        engine.allocate_kv((1, 1), 8)
    driver = Driver(engine, slots=2, tokens=8)
    with pytest.raises(InputError, match="does not lie in one of 2 slots of 8 tokens"):
        driver.step({0: [1]}, {0: 2})
    with pytest.raises(InputError, match="does not lie in one of 2 slots of 8 tokens"):
        driver.step({0: list(range(9))}, {0: 0})
    with pytest.raises(InputError, match="33 rows; the engine takes 1 to 32"):
        driver.step({0: list(range(33))}, {0: 0})
    with pytest.raises(InputError, match="takes no LoRA adapters"):
        engine.write_adapter(0, [])
    engine.close()
    with pytest.raises(InputError, match="the engine is closed"):
        engine.allocate_kv((1,), 8)


def _unallocated(engine: object) -> Driver:
    driver = Driver.__new__(Driver)
    driver.engine, driver.tokens = engine, 8  # type: ignore[assignment]
    driver.slots, driver.lengths = {}, {}
    return driver


def test_slots_on_a_device_are_bound_copied_read_and_written(tmp_path: Path) -> None:
    shape = FAMILIES["llama"]
    host = open_engine(shape, FUSED, tmp_path)
    session = providers.open_session(tmp_path / "model.onnx", providers.CPU, 1)
    engine = SlotExecutable(session, host.spec, partial(DeviceMemory, CountingDevice(), "cpu"))
    driver = Driver(engine)
    tokens = list(range(10))
    want = run_dense(dense_model(shape), [*tokens, 7])[-1:]
    driver.step({0: tokens, 1: [5, 6]}, {0: 1, 1: 3})
    source = np.arange(64, 74, dtype=np.int32)
    engine.copy_kv(0, source, source + 64)
    kept = engine.read_blocks(0, np.array([2], np.int32))
    engine.write_blocks(0, np.array([0], np.int32), kept)
    for slot in (2, 0):
        driver.slots[0], driver.lengths[0] = slot, 10
        np.testing.assert_allclose(driver.step({0: [7]}, {}), want, rtol=1e-4, atol=3e-5)
