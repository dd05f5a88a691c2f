"""What an engine may have beside plain decoding, on this machine's CUDA device: trees of drafts,
adapters, sinks, slopes and chunks; by the tests of the CPU's engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from optc.backends.tvm_cuda.loaded import graphs
from optc.runtime.executable.executable import Executable
from optc.system.hardware.machine import this_machine
from tests.backends.tvm import test_tree_engine as trees
from tests.backends.tvm.engine_driver import (
    FUSED,
    INT8,
    SHAPE,
    Engine,
    EngineDriver,
    OracleDriver,
    build_once,
)
from tests.backends.tvm.loaded import test_adapter_engine as adapters
from tests.support.families import FAMILIES, Dense
from tests.support.trees import path_to, random_parents

Build = Callable[..., Engine]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    target = f"cuda:sm_{this_machine().sm[0]}"

    def one(name: str, pipeline: str, shape: Dense = SHAPE) -> Engine:
        return build_once(tmp_path_factory, f"cuda-{name}", pipeline, target, shape)

    return one


#: Kernels of attention with chunks have tests of their own.
@pytest.mark.parametrize("name", ["sinks", "alibi", pytest.param("chunks", marks=pytest.mark.long)])
def test_what_attention_may_have(build: Build, name: str) -> None:
    engine = build(name, FUSED, FAMILIES[name])
    executable = engine.load()
    ours, oracle = EngineDriver(executable), OracleDriver(engine.model)
    tokens = np.random.default_rng(1).integers(0, FAMILIES[name].vocab, (2, 30)).tolist()
    for rows in ({0: tokens[0], 1: tokens[1][:5]}, {1: tokens[1][5:30]}, {0: [3], 1: [4]}):
        want = oracle.step(rows)
        assert np.abs(want).max() > 0.1
        np.testing.assert_allclose(ours.step(rows), want, atol=2e-5)
    executable.close()


@pytest.fixture(scope="module")
def tree_engine(build: Build) -> Executable:
    pipeline = INT8.replace("kv-cache", "kv-cache{tree=true,dtype=int8}")
    loaded: Executable = build("trees", pipeline).load()
    return loaded


def test_rows_of_a_tree_have_the_bits_of_linear_decoding(tree_engine: Executable) -> None:
    driver = EngineDriver(tree_engine, 32, 1)
    lengths, counts = (31, 16), (9, 5)
    for sequence, length in enumerate(lengths):
        trees.feed(driver, sequence, trees.KNOWN[sequence][:length])
    parents = random_parents(counts, (1, 2), 4)
    rows = {s: trees.DRAFTS[s][:count] for s, count in enumerate(counts)}
    logits = driver.step(rows, parents=parents)
    first = 0
    for sequence, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        mine = range(first, first + count)
        for leaf in set(mine) - set(parents.tolist()):
            path = path_to(parents, leaf)
            tokens = [trees.DRAFTS[sequence][row - first] for row in path]
            want = trees.along(tree_engine, trees.KNOWN[sequence][:length], tokens)
            assert np.array_equal(logits[path], want), (sequence, path)
        first += count


def test_steps_with_trees_are_captured(tree_engine: Any) -> None:
    """Copies are kernels as others are: the same logits from the graph."""
    parents = np.array([-1, 0, 0, 2], np.int32)
    seen = []
    before = tree_engine.graphs.launched
    driver = EngineDriver(tree_engine, 16, 2)
    trees.feed(driver, 0, trees.KNOWN[1][:20])
    for _ in range(graphs.PATIENCE + 3):
        seen.append(driver.step({0: trees.DRAFTS[0][:4]}, parents=parents))
        driver.sequences.lengths[0] = 20
    assert tree_engine.graphs.launched > before
    for logits in seen[1:]:
        np.testing.assert_array_equal(logits, seen[0])


def test_adapters_differ_by_row_and_not_by_batch(build: Build) -> None:
    pipeline = f"{INT8},adapters{{max=2,rank=16}}"
    engine = build("adapters", pipeline)
    executable = engine.load()
    spec = executable.spec.adapters
    plain = adapters.logits(executable, adapters.SLOTS)
    every = adapters.weights(spec)
    for slot, modules in enumerate(every):
        executable.write_adapter(slot, modules)
    together = adapters.logits(executable, adapters.SLOTS)
    np.testing.assert_array_equal(together[5:7], plain[5:7])  # without an adapter
    assert np.abs(together[:5] - plain[:5]).max() > 0.5
    alone = [adapters.logits(executable, {s: slot}) for s, slot in adapters.SLOTS.items()]
    np.testing.assert_array_equal(together, np.concatenate(alone))
    want = adapters.oracle_logits(pipeline, spec, every)
    np.testing.assert_allclose(together, want, atol=0.05)
    executable.write_adapter(1, [None] * len(spec.modules))
    cleared = adapters.logits(executable, adapters.SLOTS)
    np.testing.assert_array_equal(cleared[:5], plain[:5])
    executable.close()
