"""What is published of an engine's prefixes is what its cache has, at any moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from optc.errors import InputError, UnavailableError
from optc.runtime.engine import Engine
from optc.runtime.kv.kv_blocks import KVBlocks
from optc.runtime.kv.prefix_node import ABSENT, descendants
from optc.runtime.kv_events.events import EventBatch, EventLog, number_of
from optc.runtime.kv_events.publisher import Endpoints, Publisher, parse_endpoints
from optc.runtime.loop.core_factory import CoreFactory
from optc.runtime.params import SamplingParams
from optc.runtime.settings import ServeSettings
from optc.runtime.spill.spill import chain, root_digest
from tests.runtime.adapters.test_peft import SPEC as ADAPTERS
from tests.runtime.adapters.test_peft import saved
from tests.runtime.support.toy import ToyExecutable
from tests.serve.toys import SPEC, AdaptedExecutable

BLOCK = 4
GREEDY = SamplingParams(temperature=0, max_tokens=4)


class Kept:
    """Batches, as a consumer decodes them."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.closed = False

    def __call__(self, batch: EventBatch) -> None:
        self.batches.append(msgspec.msgpack.decode(msgspec.msgpack.encode(batch)))

    def close(self) -> None:
        self.closed = True

    def blocks(self) -> dict[int, tuple[int | None, tuple[int, ...]]]:
        """Parent and tokens of the blocks that are there now, by their hashes."""
        found: dict[int, tuple[int | None, tuple[int, ...]]] = {}
        for _, events, rank in self.batches:
            assert rank == 0
            for one in events:
                _apply(found, one)
        return found


def _apply(found: dict[int, tuple[int | None, tuple[int, ...]]], event: dict[str, Any]) -> None:
    if event["type"] == "BlockRemoved":
        for each in event["block_hashes"]:
            del found[each]
    elif event["type"] == "AllBlocksCleared":
        found.clear()
    else:
        parent, size = event["parent_block_hash"], event["block_size"]
        for index, each in enumerate(event["block_hashes"]):
            assert each not in found
            tokens = tuple(event["token_ids"][index * size : (index + 1) * size])
            found[each] = parent, tokens
            parent = each


class Holder:
    """A request, as the blocks see it."""

    def __init__(self, blocks: KVBlocks, salt: str, tokens: list[int]) -> None:
        self.salt, self.num_computed = salt, 0
        self.tokens = np.array(tokens, np.int32)
        self.tables = blocks.new_tables()


@settings(max_examples=40, deadline=None)
@given(
    windows=st.sampled_from([(0,), (0, 6), (6,)]),
    turns=st.lists(
        st.tuples(
            st.sampled_from(["\0", "\0own", "3\0"]), st.lists(st.integers(0, 1), max_size=24)
        ),
        max_size=25,
    ),
)
def test_consumers_know_the_tree(
    windows: tuple[int, ...], turns: list[tuple[str, list[int]]]
) -> None:
    kept = Kept()
    log = EventLog(kept)
    blocks = KVBlocks(windows, (9,) * len(windows), BLOCK, prefix_cache=True, log=log)
    for salt, tokens in turns:
        one = Holder(blocks, salt, [*tokens, 7])
        one.num_computed = blocks.reuse(one)
        if blocks.grow(one.tables, len(one.tokens)):
            before, one.num_computed = one.num_computed, len(one.tokens)
            blocks.store(one, before)
        blocks.free(one.tables)
        log.flush()
        assert set(kept.blocks()) == _usable(blocks)


def _usable(blocks: KVBlocks) -> set[int]:
    """Hashes of the blocks of the tree that others may share."""
    assert blocks.prefixes is not None
    roots = {salt: root for salt, root in blocks.prefixes._roots.items() if salt != "\0own"}
    nodes = [node for root in roots.values() for node in descendants(root)]
    whole = blocks.windows.index(0) if 0 in blocks.windows else None
    if whole is not None:
        assert all(node.blocks[whole] != ABSENT for node in nodes)
    return {number_of(node.digest) for node in nodes}


def test_blocks_that_come_back_from_the_spill_are_told_of() -> None:
    kept = Kept()
    log = EventLog(kept)
    chosen = ServeSettings(
        kv_memory="1MiB", block_size=BLOCK, prefix_spill="64MiB", kv_events="inproc://x"
    )
    factory = CoreFactory(lambda: ToyExecutable(SPEC), chosen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("optc.runtime.loop.core_factory._event_log", lambda _: log)
        patch.setattr("optc.runtime.spill.spill.Spill.pays", lambda *_: True)
        core = factory()
    blocks = core._blocks
    one = Holder(blocks, "\0", [5] * 9)
    assert blocks.grow(one.tables, 9)
    one.num_computed = 9
    blocks.store(one, 0)
    blocks.free(one.tables)
    log.flush()
    before = kept.blocks()
    assert len(before) == 2
    assert blocks.prefixes is not None
    for group in range(len(blocks.windows)):
        blocks.prefixes.evict(group, blocks.pools[group].num_cached)
    log.flush()
    assert kept.blocks() == {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("optc.runtime.spill.spill.Spill.pays", lambda *_: True)
        blocks.prefixes.restore("\0", np.array([5] * 9, np.int32))
    log.flush()
    assert kept.blocks() == before
    core.close()


def test_hashes_chain_tokens_and_runs_are_one_event() -> None:
    kept = Kept()
    log = EventLog(kept)
    blocks = KVBlocks((0,), (9,), BLOCK, prefix_cache=True, log=log)
    one = Holder(blocks, "\0", list(range(11)))
    assert blocks.grow(one.tables, 11)
    one.num_computed = 11
    blocks.store(one, 0)
    log.flush()
    log.flush()  # nothing is no batch
    ((_, (event,), _),) = kept.batches
    first = chain(root_digest("\0"), np.arange(4, dtype=np.int32).tobytes())
    second = chain(first, np.arange(4, 8, dtype=np.int32).tobytes())
    assert event == {
        "type": "BlockStored",
        "block_hashes": [number_of(first), number_of(second)],
        "parent_block_hash": None,
        "token_ids": list(range(8)),
        "block_size": BLOCK,
        "lora_id": None,
        "medium": "CPU",
    }


def test_an_engine_publishes_and_answers_who_missed_some() -> None:
    zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")
    context = zmq.Context()
    listener = context.socket(zmq.SUB)
    listener.subscribe("kv@")
    address, replay = (f"ipc:///tmp/optc-test-{id(context)}-{n}" for n in "pr")
    listener.connect(address)
    events = f"{address},replay={replay},topic=kv@me"
    chosen = ServeSettings(kv_memory="1MiB", block_size=BLOCK, kv_events=events)
    with Engine(lambda: ToyExecutable(SPEC), chosen) as engine:
        engine.generate([[5] * 9], GREEDY)
        engine.generate([[5] * 9], GREEDY, salt="own")
        asking = context.socket(zmq.REQ)
        asking.connect(replay)
        sent = b""
        while not sent:  # until its thread has published something
            asking.send((0).to_bytes(8, "big"))
            assert asking.poll(20_000)
            number, sent = asking.recv_multipart()
            assert len(number) == 8, "the protocol says so, as of those that are published"
        batch = msgspec.msgpack.decode(sent)
        assert batch[1][0]["token_ids"][:8] == [5] * 8
        assert len(batch[1]) == 1
        asking.close(linger=0)
        for first in range(100):  # who comes late to a publisher misses what it said before
            engine.generate([[first] * 9], GREEDY)
            if listener.poll(200):
                break
    assert listener.poll(20_000)
    numbers = []
    while listener.poll(200):
        topic, number, data = listener.recv_multipart()
        assert (topic, len(number)) == (b"kv@me", 8)
        numbers.append(int.from_bytes(number, "big"))
        last = msgspec.msgpack.decode(data)[1][-1]
    assert numbers == sorted(set(numbers))
    assert last == {"type": "AllBlocksCleared"}
    listener.close(linger=0)
    context.term()


def test_adapters_are_told_apart(tmp_path: Path) -> None:
    kept = Kept()
    log = EventLog(kept)
    executable = AdaptedExecutable(replace(SPEC, adapters=ADAPTERS))
    chosen = ServeSettings(kv_memory="1MiB", block_size=BLOCK, kv_events="inproc://x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("optc.runtime.loop.core_factory._event_log", lambda _: log)
        with Engine(lambda: executable, chosen) as engine:
            engine.load_adapter("sql", saved(tmp_path))
            engine.generate([[5] * 9], GREEDY, adapter="sql")
            engine.generate([[5] * 9], GREEDY)
    stored = [one for _, events, _ in kept.batches for one in events if "lora_id" in one]
    assert {one["lora_id"] for one in stored} == {1, None}
    assert len({one["block_hashes"][0] for one in stored}) == len(stored)
    assert kept.closed


@pytest.mark.parametrize("text", ["5557", "tcp://*:1,replay=2", "tcp://*:1,other=3", ""])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="is no address for events"):
        ServeSettings(kv_events=text)


def test_addresses() -> None:
    found = parse_endpoints("tcp://*:5557,replay=tcp://*:5558,topic=kv@pod@model")
    assert found == Endpoints("tcp://*:5557", "tcp://*:5558", "kv@pod@model")


def test_an_address_that_cannot_be_bound() -> None:
    pytest.importorskip("zmq", reason="pyzmq is not installed")
    with pytest.raises(InputError, match="cannot bind nowhere://x"):
        Publisher(Endpoints("nowhere://x"))


def test_without_pyzmq(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "zmq", None)
    with pytest.raises(UnavailableError, match="kv-events"):
        Publisher(Endpoints("inproc://x"))
