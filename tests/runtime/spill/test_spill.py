"""Spilled prefixes come back with their contents, from memory and from a file, or are computed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optc.errors import InputError
from optc.runtime.core import Core
from optc.runtime.engine import Engine
from optc.runtime.executable import Int32
from optc.runtime.kv_plan import KVPlan
from optc.runtime.params import SamplingParams
from optc.runtime.request import Request
from optc.runtime.spill.spill import Spill
from optc.runtime.spill.stores import Bytes, FileStore, HostStore, SpillWarning, Store
from optc.runtime.spill.where import parse_spill
from tests.runtime.toy import ToyExecutable, generate_naively, toy_spec
from tests.runtime.traffic import drain

GREEDY = SamplingParams(temperature=0, max_tokens=4)
TEMPORARY = Path(tempfile.gettempdir())
LONG = [int(token) for token in np.random.default_rng(0).integers(0, 48, 40)]


def make_core(
    store: Store | None, windows: tuple[int, ...] = (0,), blocks: int = 12
) -> tuple[Core, ToyExecutable]:
    executable = ToyExecutable(toy_spec(windows))
    plan = KVPlan(4, (blocks,) * len(windows), 0, 44)
    return Core(executable, plan, token_budget=16, spill_store=store), executable


def run(core: Core, prompt: list[int], salt: str = "") -> Request:
    request = core.add(np.array(prompt, np.int32), GREEDY, seed=0, salt=salt)
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


def test_a_file_that_cannot_be_written_loses_blocks_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    store = FileStore(tmp_path, 1 << 20)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.warns(SpillWarning, match="No space left"):
        store.put((0, b"a"), np.zeros(8, np.uint8))
    assert len(store) == 0
    monkeypatch.undo()
    store.put((0, b"a"), np.ones(8, np.uint8))
    assert store.get((0, b"a")) is not None


def bytes_of(number: int, size: int) -> Bytes:
    return np.full(size, number % 251, np.uint8)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    actions=st.lists(st.tuples(st.sampled_from("pgt"), st.integers(0, 6)), max_size=50),
    capacity=st.integers(0, 40),
    make=st.sampled_from([HostStore, lambda n: FileStore(TEMPORARY, n)]),
)
def test_stores_hold_the_most_recently_used(
    actions: list[tuple[str, int]], capacity: int, make: Callable[[int], Store]
) -> None:
    """Blocks of one size behave as a list that is cut at its capacity."""
    store, plain = make(capacity), list[int]()
    for number, (action, name) in enumerate(actions):
        key = (0, bytes([name]))
        if action == "p":
            store.put(key, bytes_of(name, 8))
            plain = [*(n for n in plain if n != name), name]
            plain = plain[-(capacity // 8) :] if capacity >= 8 else []
        elif action == "g":
            data = store.get(key)
            assert (data is not None) == (name in plain), number
            if data is not None:
                assert data.tolist() == [name] * 8
                plain = [*(n for n in plain if n != name), name]
        elif key in store:
            store.touch(key)
            plain = [*(n for n in plain if n != name), name]
        assert len(store) == len(plain)
    store.close()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(sizes=st.lists(st.integers(1, 30), max_size=40), capacity=st.integers(1, 60))
def test_files_hold_blocks_of_any_size_within_their_capacity(
    sizes: list[int], capacity: int
) -> None:
    store = FileStore(TEMPORARY, capacity)
    for number, size in enumerate(sizes):
        store.put((0, bytes([number])), bytes_of(number, size))
        for other in range(number + 1):
            data = store.get((0, bytes([other])))
            if data is not None:
                assert data.tolist() == bytes_of(other, sizes[other]).tolist()
        assert os.fstat(store.descriptor).st_size <= capacity
        assert ((0, bytes([number])) in store) == (size <= capacity)
    store.close()


class Ticking(ToyExecutable):
    """Takes ``seconds`` of the clock to write a block."""

    def __init__(self, seconds: float) -> None:
        super().__init__(toy_spec())
        self.now, self.seconds = 0.0, seconds

    def write_blocks(self, group: int, blocks: Int32, data: Bytes) -> None:
        self.now += self.seconds * len(blocks)


@pytest.mark.parametrize(("seconds", "pays"), [(0.5, True), (5.0, False)])
def test_restoring_must_be_faster_than_computing(seconds: float, pays: bool) -> None:
    blocks = Ticking(seconds)
    blocks.allocate_kv((4,), 4)
    spill = Spill(HostStore(1 << 20), blocks, clock=lambda: blocks.now)
    spill.save(0, b"x", 1)
    assert spill.pays(4, 1), "nothing is known yet"
    assert spill.load(0, b"x", 2)
    spill.observe_step(rows=11, requests=3, seconds=99.0)  # decodes, for the most part
    spill.observe_step(rows=10, requests=1, seconds=3.0)
    answers = [spill.pays(tokens=4, blocks=1) for _ in range(64)]
    assert answers == ([True] * 64 if pays else [False] * 63 + [True]), "a probe at times"


def test_users_say_where(tmp_path: Path) -> None:
    assert isinstance(parse_spill("1MiB"), HostStore)
    for where in (tmp_path, str(tmp_path), f"{tmp_path}:1MiB"):
        store = parse_spill(where)
        assert isinstance(store, FileStore)
        store.close()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("/no/such/folder", "prefix_spill: '/no/such/folder' is neither a size nor a folder"),
        ("0", "prefix_spill: '0' holds no block"),
        ("1 parsec", "'1 parsec' is not a size"),
    ],
)
def test_what_is_no_place_is_refused(where: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Engine(lambda: ToyExecutable(toy_spec()), prefix_spill=where)
    assert message in str(caught.value)
