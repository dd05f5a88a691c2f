"""Engines for CUDA over pages (`PagedAttention`): the graph, its schema, and its numbers by an
oracle of the operator. The CUDA provider is not started here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from msgspec.structs import replace
from onnxruntime.capi import onnxruntime_pybind11_state as state

from optc.backends.onnxruntime import BACKEND
from optc.backends.onnxruntime.build import build_engine
from optc.backends.onnxruntime.memory import HostMemory
from optc.backends.onnxruntime.pages import PagedExecutable, inputs_of
from optc.errors import InputError, UnsupportedError
from optc.system.hardware.target import parse_target
from tests.backends.onnxruntime.engines import FAMILIES, OPTIONS
from tests.backends.onnxruntime.paged_operator import ReferenceSession
from tests.backends.tvm.engine_driver import Sequences
from tests.support.families import FUSED, model_after
from tests.support.models import Dense
from tests.support.ragged import RaggedDriver

CUDA = parse_target("cuda:sm_90")
PAGED = FUSED.replace("kv-cache", "kv-cache{dtype=float16}")
#: Rotary of whole heads, both head norms, windows and softcaps, and no positions at all.
NAMES = ("llama", "qwen3", "gemma2", "no positions")
#: New rows by sequence: prefill of two, decode with a newcomer, all together; over blocks.
SCHEDULE = ({0: 9, 1: 4}, {0: 1, 1: 3}, {0: 1, 1: 1, 2: 7}, {2: 1, 0: 2, 1: 1})


def build(shape: Dense, folder: Path, spec: str = PAGED) -> PagedExecutable:
    """An engine for ``shape`` on a stand-in for the GPU, with blocks of 4 tokens."""
    found = build_engine(model_after(spec, shape), CUDA, folder, OPTIONS)
    assert found.spec.kv_layout == "paged"
    assert found.spec.block_multiple == 256
    assert found.lowered_onnx is None
    assert found.computes_in == "float16"
    session = ReferenceSession(str(folder / "model.onnx"))
    return PagedExecutable(session, replace(found.spec, block_multiple=4), HostMemory)


class Driver:
    """Sequences on an engine, tables scrambled."""

    def __init__(self, engine: PagedExecutable, blocks: int = 24) -> None:
        self.engine = engine
        windows = [group.window for group in engine.spec.groups]
        self.sequences = Sequences(windows, 4, blocks)
        engine.allocate_kv((blocks,) * len(windows), 4)

    def step(self, rows: dict[int, list[int]], wanted: list[int] | None = None) -> np.ndarray:  # type: ignore[type-arg]
        return self.engine.step(self.sequences.batch(rows, wanted))


@pytest.mark.parametrize("family", NAMES)
def test_logits_are_those_of_the_ragged_step(family: str, tmp_path: Path) -> None:
    ours = Driver(build(FAMILIES[family], tmp_path))
    oracle = RaggedDriver(model_after(PAGED, FAMILIES[family]), block_size=4)
    done: dict[int, int] = {}
    for counts in SCHEDULE:
        rows = {s: [(7 * s + done.get(s, 0) + i) % 60 for i in range(n)] for s, n in counts.items()}
        done.update({s: done.get(s, 0) + n for s, n in counts.items()})
        expected = oracle.step(rows)
        got = ours.step(rows)
        assert np.linalg.norm(got - expected) < 0.01 * np.linalg.norm(expected)


def test_quantized_weights_are_taken_too(tmp_path: Path) -> None:
    spec = f"{PAGED},quantize-weights{{bits=4,group_size=32,symmetric=false}},fuse-norm-quantize"
    ours = Driver(build(FAMILIES["llama"], tmp_path, spec))
    expected = RaggedDriver(model_after(spec, FAMILIES["llama"])).step({0: list(range(20))})
    got = ours.step({0: list(range(20))})
    assert np.linalg.norm(got - expected) < 0.05 * np.linalg.norm(expected)


def test_only_wanted_rows_have_logits_and_blocks_move(tmp_path: Path) -> None:
    driver = Driver(build(FAMILIES["llama"], tmp_path))
    everything = driver.step({0: list(range(10)), 1: [3, 4]})
    again = Driver(driver.engine)
    np.testing.assert_array_equal(
        again.step({0: list(range(10)), 1: [3, 4]}, [11, 2]), everything[[11, 2]]
    )
    engine, table = driver.engine, again.sequences.tables[0][0]
    kept = engine.read_blocks(0, np.array(table[:2], np.int32))
    engine.write_blocks(0, np.array(table[:2], np.int32), np.zeros_like(kept))
    assert not engine.read_blocks(0, np.array(table[:2], np.int32)).any()
    engine.write_blocks(0, np.array(table[:2], np.int32), kept)
    np.testing.assert_array_equal(engine.read_blocks(0, np.array(table[:2], np.int32)), kept)
    free = next(b for b in range(24) if b not in (*table, *again.sequences.tables[0][1]))
    slots = np.arange(4, dtype=np.int32)
    engine.copy_kv(0, slots + table[0] * 4, slots + free * 4)
    both = engine.read_blocks(0, np.array([table[0], free], np.int32))
    np.testing.assert_array_equal(both[0], both[1])
    with pytest.raises(InputError, match="slots must lie within 0 and 95"):
        engine.copy_kv(0, slots, slots + 96)
    with pytest.raises(InputError, match="block size 12 is not a power of two from 4 on"):
        engine.allocate_kv((8,), 12)
    engine.close()
    with pytest.raises(InputError, match="no KV pools"):
        again.step({0: [1]})
    with pytest.raises(InputError, match="the engine is closed"):
        engine.allocate_kv((8,), 4)


def test_inputs_are_those_of_the_operator() -> None:
    sequences = Sequences((0,), 4, 16)
    sequences.batch({0: [1, 2, 3, 4, 5]})
    batch = sequences.batch({0: [6], 1: [7, 8, 9]})
    feeds = inputs_of(batch)
    assert feeds["cumulative_sequence_length"].tolist() == [0, 1, 4]
    assert feeds["past_seqlens.0"].tolist() == [5, 0]
    assert feeds["attention_metadata"].tolist() == [4, 8]  # of 3 rows, and of 6 tokens
    assert feeds["slot_mapping.0"].tolist() == batch.slot_mapping[0].tolist()
    assert feeds["block_table.0"].min() == 0


def test_nodes_follow_the_schema_that_this_onnxruntime_knows(tmp_path: Path) -> None:
    build(FAMILIES["qwen3"], tmp_path)
    (schema,) = (s for s in state.get_all_operator_schema() if s.name == "PagedAttention")
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    nodes = [n for n in model.graph.node if n.op_type == "PagedAttention"]
    assert len(nodes) == 2
    given = {i.name: node for i, node in zip(schema.inputs, nodes[0].input, strict=True)}
    assert not given["key"]
    assert not given["head_sink"]
    for name in ("slot_mapping", "block_table", "past_seqlens"):
        assert given[name] == f"{name}.0"
    assert given["cumulative_sequence_length"] == "cumulative_sequence_length"
    assert given["attention_metadata"] == "attention_metadata"
    assert all(given[name] for name in ("q_norm_weight", "k_norm_weight", "cos_cache"))
    used = {attribute.name for attribute in nodes[0].attribute}
    assert used <= set(schema.attributes)
    assert used >= {name for name, a in schema.attributes.items() if a.required}
    allowed = {t.type_param_str: t.allowed_type_strs for t in schema.type_constraints}
    types = {t.name: t.data_type for t in model.graph.initializer}
    types |= {v.name: v.type.tensor_type.elem_type for v in model.graph.input}
    known = {i.name: types[given[i.name]] for i in schema.inputs if given[i.name] in types}
    assert len(known) == 11  # all but the projection
    for one in schema.inputs:
        if one.name in known:
            name = onnx.helper.tensor_dtype_to_string(known[one.name]).split(".")[1].lower()
            assert f"tensor({name})" in allowed[one.typeStr], one.name


def test_the_plan_says_what_becomes_of_attention() -> None:
    nodes = [n for n in model_after(PAGED, FAMILIES["llama"]).graph if "Paged" in n.op_type]
    reasons = {BACKEND.supports(node, CUDA).reason for node in nodes}
    assert reasons == {"PagedAttention over pages of float16"}
    reasons = {BACKEND.supports(node, parse_target("native")).reason for node in nodes}
    assert reasons == {"GroupQueryAttention over slots, head norms before it"}


@pytest.mark.parametrize(
    ("family", "why"), [("sinks", "heads have sinks"), ("alibi", "heads have slopes")]
)
def test_the_plan_says_what_only_bodies_compute(family: str, why: str) -> None:
    nodes = [n for n in model_after(PAGED, FAMILIES[family]).graph if "Paged" in n.op_type]
    (found,) = {BACKEND.supports(node, CUDA) for node in nodes}
    assert (found.how, found.reason) == (
        "unsupported",
        f"no attention for CUDA takes this one: its {why}",
    )
    (found,) = {BACKEND.supports(node, parse_target("native")) for node in nodes}
    assert found.reason == "TensorScatter, MatMul and Softmax over slots"


@pytest.mark.parametrize(
    ("family", "why"),
    [("odd heads", "multiple of 8"), ("phi3", "a part of"), ("sinks", "its heads have sinks")],
)
def test_attention_that_the_operator_does_not_take_is_refused(
    family: str, why: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=why) as caught:
        build(FAMILIES[family], tmp_path)
    assert "kv-cache.dtype=float32" in caught.value.hint
