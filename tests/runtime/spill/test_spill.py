"""Spilled prefixes come back with their contents, from memory and from a file, or are computed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from optc.runtime.executable.executable import Int32
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.loop.core import Core
from optc.runtime.params import SamplingParams
from optc.runtime.requests.completion_input import CompletionInput
from optc.runtime.requests.request import Request
from optc.runtime.settings import ServeSettings
from optc.runtime.spill.spill import Spill, chain, root_digest
from optc.runtime.spill.stores import Bytes, FileStore, HostStore, SpillWarning, Store
from tests.runtime.support.toy import ToyExecutable, generate_naively, toy_spec
from tests.runtime.support.traffic import drain

GREEDY = SamplingParams(temperature=0, max_tokens=4)
LONG = [int(token) for token in np.random.default_rng(0).integers(0, 48, 40)]


def make_core(
    store: Store | None, windows: tuple[int, ...] = (0,), blocks: int = 12
) -> tuple[Core, ToyExecutable]:
    executable = ToyExecutable(toy_spec(windows))
    plan = KVPlan(4, (blocks,) * len(windows), 0, 44)
    return Core(executable, plan, ServeSettings(token_budget=16), spill_store=store), executable


def run(core: Core, prompt: list[int], salt: str = "") -> Request:
    request = core.add(CompletionInput(np.array(prompt, np.int32), GREEDY, seed=0, salt=salt))
    drain(core)
    return request


def flush(core: Core) -> None:
    """Fill the pools with something else."""
    for token in (1, 2):
        run(core, [token] * 40)


@pytest.mark.parametrize("windows", [(0,), (0, 6), (3, 9)])
@pytest.mark.parametrize("file", [False, True])
def test_what_was_evicted_comes_back(windows: tuple[int, ...], file: bool, tmp_path: Path) -> None:
    store = FileStore(tmp_path, 1 << 20) if file else HostStore(1 << 20)
    core, executable = make_core(store, windows)
    expected = generate_naively(executable.model, LONG, 4)
    assert run(core, LONG).output.tolist() == expected
    flush(core)
    again = run(core, LONG)
    assert again.output.tolist() == expected
    assert again.metrics.cached_tokens == 36
    metrics = core.metrics()
    assert metrics.restored_blocks > 0
    assert metrics.spilled_blocks == len(store)
    assert run(core, LONG, salt="other").metrics.cached_tokens == 0
    assert list(tmp_path.iterdir()) == [], "the file has no name"
    core.close()


def test_without_a_spill_it_is_computed_again() -> None:
    core, _ = make_core(None)
    run(core, LONG)
    flush(core)
    assert run(core, LONG).metrics.cached_tokens == 0


def test_a_damaged_file_is_noticed_and_computed_again(tmp_path: Path) -> None:
    store = FileStore(tmp_path, 1 << 20)
    core, executable = make_core(store)
    expected = run(core, LONG).output.tolist()
    flush(core)
    for offset in range(0, os.fstat(store.descriptor).st_size, 8):
        os.pwrite(store.descriptor, b"\x55", offset)
    with pytest.warns(SpillWarning, match="a spilled block is damaged"):
        again = run(core, LONG)
    assert again.output.tolist() == expected == generate_naively(executable.model, LONG, 4)
    assert again.metrics.cached_tokens == 0


class Ticking(ToyExecutable):
    """Takes ``seconds`` of the clock to write a block."""

    def __init__(self, seconds: float) -> None:
        super().__init__(toy_spec())
        self.now, self.seconds = 1000.0, seconds

    def write_blocks(self, group: int, blocks: Int32, data: Bytes) -> None:
        self.now += self.seconds * len(blocks)


@pytest.mark.parametrize(("seconds", "pays"), [(0.5, True), (1.0, True), (5.0, False)])
def test_restoring_must_be_faster_than_computing(seconds: float, pays: bool) -> None:
    blocks = Ticking(seconds)
    blocks.allocate_kv((4,), 4)
    spill = Spill(HostStore(1 << 20), blocks, clock=lambda: blocks.now)
    spill.save(0, b"x", 1)
    assert spill.pays(4, 1), "nothing is known yet"
    assert spill.load(0, b"x", 2)
    spill.observe_step(rows=11, requests=3, seconds=99.0)  # decodes, for the most part
    spill.observe_step(rows=10, requests=1, seconds=2.5)  # a second for four tokens
    answers = [spill.pays(tokens=4, blocks=1) for _ in range(64)]
    assert answers == ([True] * 64 if pays else [False] * 63 + [True]), "a probe at times"


def test_its_store_is_given_back_with_it() -> None:
    blocks, store = Ticking(0.5), HostStore(1 << 20)
    blocks.allocate_kv((4,), 4)
    spill = Spill(store, blocks)
    spill.save(0, b"x", 1)
    assert (spill.num_blocks, spill.restored_blocks) == (1, 0)
    spill.close()
    assert len(store) == 0


def test_what_is_saved_again_is_the_last_to_be_forgotten() -> None:
    blocks = Ticking(0.5)
    blocks.allocate_kv((4,), 4)
    size = blocks.read_blocks(0, np.array([0], np.int32)).nbytes
    spill = Spill(HostStore(2 * size), blocks)
    for digest in (b"a", b"b", b"a", b"c"):
        spill.save(0, digest, 1)
    assert [spill.has(0, digest) for digest in (b"a", b"b", b"c")] == [True, False, True]
    spill.touch(0, b"a")
    spill.save(0, b"d", 1)
    assert [spill.has(0, digest) for digest in (b"a", b"c", b"d")] == [True, False, True]


def test_digests_are_of_sixteen_bytes_and_of_all_before() -> None:
    root = root_digest("tenant")
    assert len(root) == len(chain(root, b"k")) == 16
    assert len({root, root_digest(""), chain(root, b"k"), chain(root_digest(""), b"k")}) == 4
