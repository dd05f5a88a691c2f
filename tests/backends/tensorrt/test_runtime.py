"""The execution path without a GPU: device and engine are stand-ins, everything between is real."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx_ir as ir
import pytest

from optc.backends.tensorrt.build import save
from optc.backends.tensorrt.engine_data import EngineData
from optc.backends.tensorrt.legalize import legalize
from optc.backends.tensorrt.limits import Limits, slot_length
from optc.backends.tensorrt.runtime.engine import ProfileRunner
from optc.backends.tensorrt.runtime.executable import SlotExecutable
from optc.backends.tensorrt.runtime.open import check_tensors
from optc.errors import ArtifactError, InputError
from optc.runtime.executable.executable import KVGroup, LayerKV, StepInterface
from tests.backends.tensorrt.fake_gpu import FakeContext, FakeDevice, fake_contexts
from tests.backends.tensorrt.lowered import Array
from tests.backends.tensorrt.test_plan import LIMITS, step
from tests.support.families import model_after
from tests.support.models import Dense, dense_model
from tests.support.ragged import run_dense

CONTEXT = 40
SHAPE = Dense(hidden=32, heads=4, kv_heads=2, head_dim=8, vocab=61, tied=True)


class Gpu:
    """An executable over stand-ins, and the dense model that it must equal."""

    def __init__(self, folder: Path, limits: tuple[Limits, ...], *, graphs: bool) -> None:

        self.dense = dense_model(SHAPE)
        model = model_after("fuse-qkv,fuse-gate-up,kv-cache,fuse-rotary", SHAPE)
        length = slot_length(CONTEXT)
        legalize(model, length)
        inputs = [str(value.name) for value in model.graph.inputs]
        outputs = [str(value.name) for value in model.graph.outputs]
        aliases = dict(zip(outputs[1:], inputs[-len(outputs) + 1 :], strict=True))
        self.device = FakeDevice()
        self.contexts = fake_contexts(save(model, folder), self.device, aliases, len(limits))
        kv = LayerKV(0, SHAPE.kv_heads, SHAPE.head_dim, SHAPE.head_dim, "float16")
        self.spec = StepInterface(
            vocab_size=SHAPE.vocab,
            max_context=CONTEXT,
            max_rows=64,
            max_sequences=8,
            max_logit_rows=64,
            block_multiple=1,
            batch_invariant=False,
            groups=(KVGroup(0, tuple(range(SHAPE.layers))),),
            layers=(kv,) * SHAPE.layers,
            kv_layout="slots",
        )
        runners = [
            ProfileRunner(context, self.device, limit, SHAPE.vocab, inputs, graphs=graphs)
            for context, limit in zip(self.contexts, limits, strict=True)
        ]
        self.executable = SlotExecutable(self.spec, self.device, runners, limits, length)
        self.executable.allocate_kv((8,), CONTEXT)
        self.texts: dict[int, list[int]] = {}

    def step(self, rows: dict[int, list[int]]) -> dict[int, Array]:
        """Append tokens to slots; logits of every new row by slot."""
        wanted = {
            slot: (len(self.texts.get(slot, [])), len(new), list(range(len(new))))
            for slot, new in rows.items()
        }
        batch = step(wanted)
        flat = [token for new in rows.values() for token in new]
        batch = batch.__class__(**{**batch.__dict__, "tokens": np.array(flat, np.int32)})
        logits = self.executable.step(batch)
        results, start = {}, 0
        for slot, new in rows.items():
            self.texts.setdefault(slot, []).extend(new)
            results[slot] = logits[start : start + len(new)]
            start += len(new)
        return results

    def expected(self, slot: int, rows: int) -> Array:
        return run_dense(self.dense, self.texts[slot])[-rows:]

    def check(self, rows: dict[int, list[int]]) -> None:
        for slot, logits in self.step(rows).items():
            want = self.expected(slot, len(logits))
            assert np.abs(logits - want).max() < 0.02 * np.abs(want).max(), slot


@pytest.fixture
def gpu(tmp_path: Path) -> Gpu:
    return Gpu(tmp_path, LIMITS, graphs=True)


def _tokens(rng: np.random.Generator, count: int) -> list[int]:
    return [int(token) for token in rng.integers(0, SHAPE.vocab, count)]


def test_mixed_steps_equal_the_dense_model(gpu: Gpu) -> None:
    """Prompts in chunks, decodes, and rows of drafts in one step, slots in any order."""
    rng = np.random.default_rng(0)
    gpu.check({2: _tokens(rng, 20), 0: _tokens(rng, 1), 5: _tokens(rng, 6)})
    gpu.check({0: _tokens(rng, 1), 2: _tokens(rng, 1), 5: _tokens(rng, 1)})
    gpu.check({5: _tokens(rng, 4), 2: _tokens(rng, 2), 7: _tokens(rng, 18), 0: _tokens(rng, 1)})
    for _ in range(3):
        gpu.check({slot: _tokens(rng, 1) for slot in (0, 2, 5, 7)})
    profiles = [len(context.runs) for context in gpu.contexts]
    assert all(profiles)


def test_random_schedules_equal_the_dense_model(gpu: Gpu) -> None:
    rng = np.random.default_rng(1)
    for _ in range(12):
        slots = rng.permutation(8)[: rng.integers(1, 6)]
        rows = {}
        for slot in slots.tolist():
            room = CONTEXT - len(gpu.texts.get(slot, []))
            if room:
                rows[slot] = _tokens(rng, int(min(room, rng.choice([1, 1, 3, 8, 19]))))
        if rows:
            gpu.check(rows)


def test_a_slot_is_filled_to_its_last_token_while_others_idle(gpu: Gpu) -> None:
    rng = np.random.default_rng(2)
    gpu.check({1: _tokens(rng, CONTEXT), 0: _tokens(rng, 3), 3: _tokens(rng, 3)})
    gpu.check({0: _tokens(rng, 5), 3: _tokens(rng, 5)})  # slot 1 idles in their call
    full = gpu.texts[1]
    gpu.texts[1] = full[:-1]
    gpu.check({1: full[-1:]})


def test_rejected_rows_are_overwritten(gpu: Gpu) -> None:
    rng = np.random.default_rng(3)
    gpu.check({4: _tokens(rng, 7)})
    gpu.check({4: _tokens(rng, 4)})
    gpu.texts[4] = gpu.texts[4][:-3]
    gpu.check({4: _tokens(rng, 2)})


def test_a_copied_slot_goes_on_like_its_source(gpu: Gpu) -> None:
    rng = np.random.default_rng(4)
    gpu.check({6: _tokens(rng, 13)})
    tokens = np.arange(13, dtype=np.int32)
    gpu.executable.copy_kv(0, 6 * CONTEXT + tokens, 1 * CONTEXT + tokens)
    gpu.texts[1] = list(gpu.texts[6])
    gpu.check({1: _tokens(rng, 2), 6: _tokens(rng, 1)})


def test_slots_are_read_and_written_back(gpu: Gpu) -> None:
    rng = np.random.default_rng(5)
    gpu.check({2: _tokens(rng, 11), 3: _tokens(rng, 5)})
    held = gpu.executable.read_blocks(0, np.array([2, 3], np.int32))
    gpu.texts[5], gpu.texts[6] = list(gpu.texts[2]), list(gpu.texts[3])
    gpu.executable.write_blocks(0, np.array([5, 6], np.int32), held)
    gpu.check({5: _tokens(rng, 1), 6: _tokens(rng, 1)})


def test_decode_calls_of_a_shape_are_captured_once_and_replayed(gpu: Gpu) -> None:
    rng = np.random.default_rng(6)
    gpu.check({0: _tokens(rng, 4), 1: _tokens(rng, 4)})
    for _ in range(5):
        gpu.check({0: _tokens(rng, 1), 1: _tokens(rng, 1)})
    assert (gpu.device.captured, gpu.device.launched) == (1, 4)
    gpu.executable.allocate_kv((8,), CONTEXT)  # new addresses
    gpu.texts.clear()
    assert gpu.device.captured == 0
    gpu.check({0: _tokens(rng, 1), 1: _tokens(rng, 1)})
    assert gpu.device.captured == 0


def test_all_device_memory_is_given_back(gpu: Gpu) -> None:
    gpu.executable.allocate_kv((4,), 16)
    gpu.executable.close()
    assert gpu.device.taken == {}


def test_slots_longer_than_the_engine_are_refused(gpu: Gpu) -> None:
    with pytest.raises(InputError, match="slots of 41 tokens do not suit the engine"):
        gpu.executable.allocate_kv((1,), 41)
    with pytest.raises(InputError, match="takes no LoRA adapters"):
        gpu.executable.write_adapter(0, [])


class _Engine:
    def __init__(self, names: list[str], aliases: dict[str, str]) -> None:
        self._names, self._aliases = names, aliases
        self.num_io_tensors = len(names)

    def get_tensor_name(self, index: int) -> str:
        return self._names[index]

    def get_aliased_input_tensor(self, name: str) -> str | None:
        return self._aliases.get(name)


def test_tensors_and_aliases_must_be_those_of_the_manifest() -> None:
    inputs, aliases = ("tokens", "past_k.0"), {"present_k.0": "past_k.0"}
    data = EngineData("tensorrt_rtx", "1.7.1.116", 16, (), inputs, aliases)
    names = ["tokens", "past_k.0", "logits", "present_k.0"]
    provider = SimpleNamespace()
    check_tensors(_Engine(names, aliases), provider, data, "engine")  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match=r"differ in past_k\.0"):
        check_tensors(_Engine(["tokens", "logits", "present_k.0"], {}), provider, data, "e")  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match=r"shares its memory with nothing, not with past_k\.0"):
        check_tensors(_Engine(names, {}), provider, data, "engine")  # type: ignore[arg-type]


def test_contexts_are_told_every_tensor(gpu: Gpu) -> None:
    rng = np.random.default_rng(7)
    gpu.check({0: _tokens(rng, 1)})
    context: FakeContext = gpu.contexts[0]
    model = {"tokens", "positions", "write_indices", "logit_index"}
    caches = {f"past_{kind}.{layer}" for kind in "kv" for layer in range(SHAPE.layers)}
    assert set(context.shapes) == model | caches
    assert set(context.addresses) == {"logits"} | model | caches | {
        name.replace("past", "present") for name in caches
    }
    assert isinstance(gpu.dense, ir.Model)
