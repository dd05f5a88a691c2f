"""Watches an engine while it serves, and looks at it when nobody asks for anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import optc
from benchmarks.soak.memory import growth_percent, resident
from optc.runtime.loop.core import Core
from optc.runtime.speculative.drafters.draft_model import DraftModel


def idle_faults(core: Core, found: list[str]) -> None:
    """Add to ``found`` the faults in blocks and queues of a core that has nothing to do."""
    metrics = core.metrics()
    if metrics.running or metrics.waiting:
        found.append(f"idle, but {metrics.running} run and {metrics.waiting} wait")
    if metrics.free_blocks != metrics.total_blocks:
        found.append(f"{metrics.free_blocks} of {metrics.total_blocks} blocks are back")
    drafts = [s.proposer for s in core._speculator._sources] if core._speculator else []
    models = [proposer for proposer in drafts if isinstance(proposer, DraftModel)]
    if any(model.available() != model.plan.blocks for model in models):
        found.append("blocks of the draft model are not back")
    for check in (core.scheduler.check_integrity, *(model.check_integrity for model in models)):
        try:
            check()
        except RuntimeError as error:
            found.append(f"integrity: {error}")


@contextmanager
def sampled(engine: optc.Engine, note: dict[str, Any]) -> Iterator[None]:
    """Sample resident memory and free blocks once a second into ``note``."""
    done = threading.Event()
    samples: list[tuple[float, float]] = []
    free: list[int] = []

    def sample() -> None:
        while not done.wait(1.0):
            samples.append((time.monotonic(), float(resident().anonymous)))
            free.append(min(engine.metrics().free_blocks, default=0))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        if samples:
            growth = growth_percent(samples)
            note |= {
                "growth_percent": None if growth is None else round(growth, 3),
                "most_anonymous_mb": round(max(amount for _, amount in samples) / 1e6, 3),
                "fewest_free_blocks": min(free),
            }
