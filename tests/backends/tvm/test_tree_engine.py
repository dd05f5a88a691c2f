"""Engines on trees of rows: each row has the bits of linear decoding along its path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optc.errors import InputError
from optc.runtime.executable.executable import Executable, Float32
from tests.backends.tvm.engine_driver import (
    FUSED,
    INT8,
    SHAPE,
    Engine,
    EngineDriver,
    OracleDriver,
    build_once,
)
from tests.support.trees import path_to, random_parents

#: Pipeline and KV type: weights and KV of 8 bits in one engine.
PIPELINES = {
    "fp32": (FUSED, "float32"),
    "int8": (INT8, "int8"),
    "kv-bf16": (FUSED, "bfloat16"),
    "kv-int4": (FUSED, "int4,recent=20"),
}
RANDOM = np.random.default_rng(8)
KNOWN = [RANDOM.integers(0, SHAPE.vocab, n).tolist() for n in (300, 47, 16)]
DRAFTS = RANDOM.integers(0, SHAPE.vocab, (3, 16)).tolist()


def built(factory: pytest.TempPathFactory, name: str) -> Engine:
    """The engine of a pipeline, with trees; it is built once."""
    spec, dtype = PIPELINES[name]
    trees = spec.replace("kv-cache", f"kv-cache{{tree=true,dtype={dtype}}}")
    return build_once(factory, f"tree-engine-{name}", trees)


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return built(tmp_path_factory, "fp32")


@pytest.fixture(
    scope="module",
    # trees over bfloat16, whose attention other engines have, are copied by a kernel with tests
    params=[
        pytest.param(name, marks=[pytest.mark.long] if name == "kv-bf16" else [])
        for name in PIPELINES
    ],
)
def executable(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Executable]:
    loaded = built(tmp_path_factory, request.param).load()
    yield loaded
    loaded.close()


def feed(driver: EngineDriver, sequence: int, tokens: list[int]) -> Float32:
    """The tokens in linear steps of at most 90 rows; logits of all."""
    parts = [driver.step({sequence: tokens[i : i + 90]}) for i in range(0, len(tokens), 90)]
    return np.concatenate(parts)


def along(executable: Executable, known: list[int], path: list[int]) -> Float32:
    """Logits of ``path`` decoded linearly, alone, behind ``known``."""
    driver = EngineDriver(executable, seed=3)
    return feed(driver, 0, known + path)[len(known) :]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)
@given(
    lengths=st.tuples(
        st.sampled_from([3, 15, 16, 17, 31, 250, 256, 300]), st.integers(1, 47), st.integers(1, 16)
    ),
    rows=st.tuples(st.integers(2, 16), st.integers(1, 16), st.integers(2, 16)),
    linear=st.booleans(),
    block_size=st.sampled_from([16, 32, 64]),
    seed=st.integers(0, 99),
)
def test_a_row_has_the_bits_of_linear_decoding(
    executable: Executable,
    lengths: tuple[int, int, int],
    rows: tuple[int, int, int],
    linear: bool,
    block_size: int,
    seed: int,
) -> None:
    driver = EngineDriver(executable, block_size, seed)
    for sequence, length in enumerate(lengths):
        feed(driver, sequence, KNOWN[sequence][:length])
    parents = random_parents(rows, (1, rows[1] if linear else 1, 2), seed)
    logits = driver.step({s: DRAFTS[s][:count] for s, count in enumerate(rows)}, parents=parents)
    first = 0
    for sequence, (length, count) in enumerate(zip(lengths, rows, strict=True)):
        mine = range(first, first + count)
        for leaf in set(mine) - set(parents.tolist()):
            path = path_to(parents, leaf)
            tokens = [DRAFTS[sequence][row - first] for row in path]
            want = along(executable, KNOWN[sequence][:length], tokens)
            assert np.array_equal(logits[path], want), (sequence, path)
        first += count


@pytest.mark.parametrize("block_size", [16, 32])
def test_an_accepted_path_goes_on_after_its_keys_and_values_moved_up(
    executable: Executable, block_size: int
) -> None:
    known, path = KNOWN[1], [0, 2, 3, 6]
    parents = np.array([-1, 0, 0, 2, 1, 4, 3], np.int32)
    driver = EngineDriver(executable, block_size)
    feed(driver, 0, known)
    driver.step({0: DRAFTS[0][:7]}, parents=parents)
    for group, tables in enumerate(driver.sequences.tables):
        table = np.array(tables[0], np.int32)
        at = len(known) + np.array([path, range(len(path))], np.int32)
        source, target = table[at // block_size] * block_size + at % block_size
        executable.copy_kv(group, source, target)
    driver.sequences.lengths[0] = len(known) + len(path)
    accepted = [DRAFTS[0][row] for row in path]
    logits = driver.step({0: DRAFTS[1][:5]})
    want = along(executable, known, accepted + DRAFTS[1][:5])[len(path) :]
    assert np.array_equal(logits, want)


def test_logits_equal_the_function_bodies(exact: Engine) -> None:
    ours, oracle = EngineDriver(exact.load()), OracleDriver(exact.model)
    known = {0: KNOWN[1], 1: KNOWN[2]}
    chain = random_parents([47, 16], [47, 16], 0)
    ours.step(known, parents=chain)
    oracle.step(known, parents=chain)
    parents = random_parents([12, 9], [1, 2], 5)
    rows = {0: DRAFTS[0][:12], 1: DRAFTS[1][:9]}
    got, want = (driver.step(rows, parents=parents) for driver in (ours, oracle))
    assert np.abs(want).max() > 1.0
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_bad_trees_are_refused(exact: Engine) -> None:
    driver = EngineDriver(exact.load())
    for parents, message in (
        ([-1, 0, 2], "a row must descend from an earlier one of its sequence"),
        ([0, 0, 1], "a row must descend from an earlier one of its sequence"),
        ([-1, 0], "tree_parent needs one entry for each row"),
    ):
        batch = driver.sequences.batch({0: [1, 2, 3]})
        with pytest.raises(InputError, match=message):
            driver.engine.step(replace(batch, tree_parent=np.array(parents, np.int32)))


def test_an_engine_without_trees_says_so(engines: Callable[[str], Engine]) -> None:
    driver = EngineDriver(engines("fp32").load())
    batch = driver.sequences.batch({0: [1, 2]}, parents=np.array([-1, 0], np.int32))
    with pytest.raises(InputError, match=r"takes no trees of drafts.*kv-cache\.tree=true"):
        driver.engine.step(batch)
