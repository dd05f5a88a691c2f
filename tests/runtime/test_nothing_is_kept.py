"""An engine keeps nothing of requests that have ended but what is bounded.

Each feature serves rounds of requests that are all new. After the first ones every cache is full:
from then on neither the containers that the engine reaches grow, nor is there one more object.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from optc.errors import OptcError
from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Float32, StepBatch
from optc.runtime.handle import Handle
from optc.runtime.kv.prefix_cache import PrefixCache
from optc.runtime.kv.prefix_node import Node
from optc.runtime.metrics.quantiles import Quantiles
from optc.runtime.params import SamplingParams
from optc.runtime.settings import ServeSettings
from optc.runtime.speculative.drafters.ngram_pool import NGramPool
from optc.runtime.speculative.drafting import Drafting
from optc.runtime.speculative.kinds import parse_kinds
from tests.runtime.adapters.test_peft import SPEC as ADAPTERS
from tests.runtime.adapters.test_peft import saved
from tests.runtime.support.census import entries, living
from tests.serve.toys import SPEC, AdaptedExecutable, tokenizer
from tests.support.cost.only_new import only_new_objects

__all__ = ["only_new_objects"]

#: Requests of a round; rounds until all is full, and those that are counted.
REQUESTS, WARM, COUNTED = 16, 2, 2
#: Caches of fixed bounds that fill slowly, or hold now more and now less; their own tests hold them
#: to these, and the blocks of the prefix cache are counted here.
BOUNDED = (Quantiles, NGramPool, PrefixCache)


class Forgetful(AdaptedExecutable):
    """The toy, without its notes of what it was asked."""

    def step(self, batch: StepBatch) -> Float32:
        logits = super().step(batch)
        self.batches.clear()
        return logits


class Traffic:
    """Requests to an engine, none of which comes twice."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self.folder = folder
        self._numbers = count(1)

    def next(self) -> int:
        return next(self._numbers)

    def submit(self, **given: Any) -> Handle:
        terms = {n: given.pop(n) for n in ("salt", "adapter", "deadline_s") if n in given}
        params = SamplingParams(**{"max_tokens": 4, "temperature": 0} | given)
        return self.engine.submit(f"request {self.next()} or so", params, **terms)

    def ask(self, **given: Any) -> None:
        self.end([self.submit(**given) for _ in range(REQUESTS)])

    def end(self, handles: list[Handle]) -> None:
        for handle in handles:
            handle.result()

    def until_idle(self) -> None:
        ended = time.monotonic() + 600
        while (now := self.engine.metrics()).running or now.waiting:
            assert time.monotonic() < ended
            time.sleep(0.002)


def cancelled(traffic: Traffic) -> None:
    handles = [traffic.submit(max_tokens=40) for _ in range(REQUESTS)]
    for place, handle in enumerate(handles):
        for _ in zip(range(place % 3), handle, strict=False):
            pass
        handle.cancel()
    traffic.end(handles)
    for handle in handles:
        handle.cancel()


def abandoned(traffic: Traffic) -> None:
    for place in range(REQUESTS):
        handle = traffic.submit(max_tokens=6)
        for _ in zip(range(place % 3), handle, strict=False):
            pass
    del handle


def in_a_loop(traffic: Traffic) -> None:
    async def read(some: int) -> None:
        params = SamplingParams(max_tokens=6, temperature=0)
        stream = traffic.engine.stream(f"request {traffic.next()}", params)
        async for _ in stream:
            some -= 1
            if not some:
                return

    async def several() -> None:
        await asyncio.gather(*(read(place % 4) for place in range(REQUESTS)))

    asyncio.run(several())


def refused(traffic: Traffic) -> None:
    for place in range(REQUESTS):
        wrong: dict[str, Any] = {"stop_token_ids": [-1]} if place % 2 else {"adapter": "nobody's"}
        with pytest.raises(OptcError):
            traffic.submit(**wrong)


def adapted(traffic: Traffic) -> None:
    for _ in range(3):
        name = f"adapter {traffic.next()}"
        traffic.engine.load_adapter(name, traffic.folder)
        traffic.ask(adapter=name)
        traffic.engine.unload_adapter(name)


def salted(traffic: Traffic) -> None:
    for _ in range(3):
        traffic.ask(salt=f"salt {traffic.next()}")


def with_variables(traffic: Traffic) -> None:
    handles = []
    for _ in range(REQUESTS):
        message = {"role": "user", "content": "a"}
        text = traffic.engine.tokenizer
        assert text is not None
        text.render_chat([message], **{f"variable_{traffic.next()}": 1})
        handles.append(traffic.submit())
    traffic.end(handles)


def asleep(traffic: Traffic) -> None:
    for _ in range(2):
        traffic.ask()
        ended = time.monotonic() + 600
        while not traffic.engine.health().asleep:
            assert time.monotonic() < ended
            time.sleep(0.002)


def with_structures(traffic: Traffic) -> None:
    traffic.end([traffic.submit(regex=f"[a-z]{{1,4}}{traffic.next()}") for _ in range(8)])


FEATURES: dict[str, tuple[Callable[[Traffic], None], dict[str, Any]]] = {
    "plain": (Traffic.ask, {}),
    "no prefix cache": (Traffic.ask, {"prefix_cache": False}),
    "lfu": (Traffic.ask, {"prefix_eviction": "lfu"}),
    "sampled": (lambda t: t.ask(temperature=1.0, top_p=0.9, logprobs=2, n=3), {}),
    "penalties": (lambda t: t.ask(repetition_penalty=1.2, logit_bias={7: 2.0}, stop="a"), {}),
    "beams": (lambda t: t.ask(beam_width=3), {}),
    "scored": (lambda t: t.ask(prompt_logprobs=2), {}),
    "structures": (with_structures, {}),
    "deadlines": (lambda t: t.ask(deadline_s=3600.0), {}),
    "late": (lambda t: t.ask(deadline_s=1e-6), {}),
    "cancelled": (cancelled, {}),
    "abandoned": (abandoned, {}),
    "event loops": (in_a_loop, {}),
    "refused": (refused, {}),
    "adapters": (adapted, {}),
    "salts": (salted, {}),
    "variables": (with_variables, {}),
    "sleep": (asleep, {"sleep_after": 0.01}),
    "spilled": (Traffic.ask, {"prefix_spill": "8KiB"}),
    "spilled to a file": (Traffic.ask, {"prefix_spill": "FOLDER:8KiB"}),
    "answers": (Traffic.ask, {"answer_cache": "8KiB"}),
    "preempted": (lambda t: t.ask(max_tokens=60), {}),
    "ngram": (lambda t: t.ask(max_tokens=12), {"speculate": "ngram"}),
    "lookahead": (lambda t: t.ask(max_tokens=12), {"speculate": "lookahead"}),
}


def opened(folder: Path, speculate: str = "off", **given: Any) -> Engine:
    """A toy with few blocks, so that its caches are full soon."""
    if "prefix_spill" in given:
        given["prefix_spill"] = given["prefix_spill"].replace("FOLDER", str(folder))
    spec = replace(SPEC, adapters=ADAPTERS, max_context=128, max_logit_rows=24)
    return Engine(
        lambda: Forgetful(spec),
        ServeSettings(kv_memory="40KiB", block_size=4, **given),
        tokenizer=tokenizer(),
        eos_token_ids=[1],
        drafting=Drafting(parse_kinds(speculate), count=None if speculate == "off" else 3),
    )


@pytest.fixture
def traffic(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Traffic]:
    """An engine whose bounds are small, so that they are met within few requests."""
    monkeypatch.setattr("optc.runtime.scheduling.waiting._GAP", 0)
    monkeypatch.setattr("optc.runtime.requests.deadlines._FEW", 1)
    monkeypatch.setattr("optc.runtime.structured.compiler._KEPT", 4)
    monkeypatch.setattr("optc.system.logs.named_once._NAMES", 8)
    with opened(tmp_path, **request.param) as engine:
        yield Traffic(engine, saved(tmp_path))


@pytest.mark.parametrize(
    ("serve", "traffic"), FEATURES.values(), indirect=["traffic"], ids=list(FEATURES)
)
def test_nothing_is_kept_of_what_has_ended(
    serve: Callable[[Traffic], None], traffic: Traffic
) -> None:
    if serve is with_structures:
        pytest.importorskip("llguidance", reason="no package llguidance")

    def rounds(number: int) -> tuple[Counter[str], Counter[str]]:
        for _ in range(number):
            serve(traffic)
            traffic.until_idle()
        return entries(traffic.engine, BOUNDED), living()

    full, before = rounds(WARM)
    held, after = rounds(COUNTED)
    assert full.total() > 50, "the walk reaches the engine's parts"
    assert held.total() - full.total() < REQUESTS * COUNTED, dict(held - full)
    nodes = after.pop(f"{Node.__module__}.{Node.__qualname__}", 0)
    assert nodes <= 2 * sum(traffic.engine.metrics().total_blocks)
    more = after - before
    assert not {name: n for name, n in more.items() if n >= REQUESTS * COUNTED}


@pytest.mark.parametrize("kind", ["off", "ngram", "lookahead"])
def test_a_closed_engine_leaves_no_object(kind: str, tmp_path: Path) -> None:
    counts = []
    for number in range(3):
        with opened(tmp_path, speculate=kind) as engine:
            traffic = Traffic(engine, tmp_path)
            for _ in range(number + 1):
                traffic.ask(max_tokens=12)
        del engine, traffic
        counts.append(living())
    assert not counts[2] - counts[1], "whatever the first engine loaded is there once"


def test_a_leak_of_one_entry_a_request_would_be_seen() -> None:
    class Leaking:
        def __init__(self) -> None:
            self.seen: dict[int, int] = {}  # of numbers alone, which the collector does not know

    one = Leaking()
    before = entries(one).total()
    one.seen.update(zip(range(24), range(24), strict=True))
    assert entries(one).total() == before + 24
