"""A long run of one artifact under random settings and traffic: does it stay right and small?

    python -m benchmarks.soak ARTIFACT [--minutes 60] [--seed 0] [--draft ARTIFACT]
                              [--clients 6] [--round-seconds 60] [--threads N] [--output FILE]

Each round loads the artifact with other settings (KV memory, block size, prefix cache, eviction,
spill, budgets, speculation by all that the artifact supports) and lets clients hand in
requests at once: sampled, greedy, with structures, several completions, beams, salts, priorities,
deadlines, adapters, cancellations, and requests that are read for a while and then lost. Afterwards
each request runs alone, where nothing is cached of it, and must give the same; some run in all
rounds and must give the same in all. When nobody asks any more all KV blocks must be back. When the
engine is closed, the bytes are noted that malloc has given out and nobody freed, and resident
memory after freed pages went back.

Totals are printed, and written to the file, however the run ends. The exit code is 1 after a
difference, an unexpected error, a block that is lost, an engine that died, or memory of any of
these kinds that grew in the run's second half by 2 % or more, and 130 where it was interrupted.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import optc
from benchmarks.soak.adapters import write_adapters
from benchmarks.soak.draws import Draws, Job, Manner, draft_of
from benchmarks.soak.memory import allocated, growth_percent, measure_exactly, resident
from benchmarks.soak.traffic import (
    PATIENCE_S,
    Clients,
    Outcome,
    Tally,
    differences,
    outcome,
)
from benchmarks.soak.watch import idle_faults, sampled
from optc.errors import EngineError
from optc.runtime.speculative.kinds import KINDS
from optc.system.hardware.target import usable_threads
from optc.system.processes.process_memory import give_back_freed

#: Requests of a round, and those of them that are the same in all rounds.
JOBS, ANCHORS = 40, 8
#: Growth of memory that is too much, in percent over the second half of the run.
MOST_GROWTH = 2.0
#: Kinds of memory that are noted, by how their notes are called.
_MEMORY = {"all": "", "anonymous": "anonymous_", "allocated": "allocated_"}
#: Differences that are kept word by word.
_SHOWN = 20


@dataclass
class Soak:
    """All of one run.

    Attributes:
        load: Keywords of `optc.load` that all rounds have.
        draws: What is drawn at random.
        seed: Of all draws.
        adapters: Folders by the names that requests call them, where the artifact takes some.
    """

    artifact: Path
    load: dict[str, Any]
    draws: Draws
    seed: int
    clients: int
    adapters: Mapping[str, Path]
    begun: float = field(default_factory=time.monotonic)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    differing: list[str] = field(default_factory=list)
    anchors: dict[Job, tuple[Outcome, ...]] = field(default_factory=dict)

    def run(self, until: float, round_s: float) -> None:
        """Rounds until a time of the monotonic clock."""
        rng = random.Random(f"{self.seed}/anchors")
        anchors = [self.draws.job(rng) for _ in range(ANCHORS)]
        while not self.rounds or time.monotonic() < until:
            rng = random.Random(f"{self.seed}/{len(self.rounds)}")
            chosen = self.draws.settings(rng)
            jobs = anchors + [self.draws.job(rng) for _ in range(JOBS - ANCHORS)]
            self.rounds.append({"settings": chosen})
            self.round(self.rounds[-1], jobs, min(round_s, until - time.monotonic()))
            gc.collect()
            give_back_freed()
            now, given = resident(), allocated()
            self.rounds[-1] |= {
                "ended_s": round(time.monotonic() - self.begun, 1),
                "closed_mb": round(now.all / 1e6, 3),
                "closed_anonymous_mb": round(now.anonymous / 1e6, 3),
            }
            if given is not None:
                self.rounds[-1]["closed_allocated_mb"] = round(given / 1e6, 3)
            print(json.dumps(self.rounds[-1], default=str), flush=True)

    def round(self, note: dict[str, Any], jobs: list[Job], seconds: float) -> None:
        """One engine from its load to its end."""
        tally = Tally()
        try:
            with optc.load(self.artifact, **self.load, **note["settings"]) as engine:
                try:
                    for name, folder in self.adapters.items():
                        engine.load_adapter(name, folder)
                    with sampled(engine, note):
                        self.traffic(engine, jobs, tally, seconds)
                        self.wait_for_lost(engine)
                    self.check_blocks(engine)
                    self.check_alone(engine, jobs, tally)
                finally:
                    self.count(engine, tally, note)
        except EngineError as error:
            self.errors[f"dead engine: {error.__cause__!r}"] += 1
        except optc.OptcError as error:
            self.errors[f"load: {error}"] += 1

    def traffic(self, engine: optc.Engine, jobs: list[Job], tally: Tally, seconds: float) -> None:
        """Clients for so long."""

        def draw(rng: random.Random) -> tuple[Job, Manner]:
            return rng.choice(jobs), self.draws.manner(rng)

        seed = f"{self.seed}/{len(self.rounds)}"
        if not Clients(self.clients, engine, draw, tally, seed).run(seconds):
            tally.fault("a client did not end")

    def wait_for_lost(self, engine: optc.Engine) -> None:
        """Requests that nobody waits for end, too."""
        until = time.monotonic() + PATIENCE_S
        while (now := engine.metrics()).running or now.waiting:
            if time.monotonic() > until:
                self.errors["a lost request stays for ever"] += 1
                return
            time.sleep(0.02)

    def check_blocks(self, engine: optc.Engine) -> None:
        """Nobody asks for anything: all blocks are free or only cached."""
        found: list[str] = []
        engine._worker.call(partial(idle_faults, found=found))
        self.errors.update(found)

    def check_alone(self, engine: optc.Engine, jobs: list[Job], tally: Tally) -> None:
        """Each request that was handed in, by its own and with nothing of it cached."""
        for number, job in enumerate(jobs):
            if job not in tally.outcomes:
                continue
            salt = f"alone {number}"
            handle = engine.submit(job.prompt, job.params, adapter=job.adapter, salt=salt)
            alone = outcome(handle.result().completions)
            wrong = differences(tally, job, alone)
            if number < ANCHORS and self.anchors.setdefault(job, alone) != alone:
                wrong.append(f"{job} alone: {alone} instead of {self.anchors[job]}")
            self.counts["compared"] += tally.outcomes[job].total()
            self.counts["differences"] += len(wrong)
            self.differing += [f"round {len(self.rounds) - 1}: {text}" for text in wrong]

    def count(self, engine: optc.Engine, tally: Tally, note: dict[str, Any]) -> None:
        """Add up what a round did."""
        metrics = engine.metrics()
        counts = {
            "requests": tally.requests,
            "abandoned": tally.abandoned,
            "steps": metrics.steps,
            "tokens": tally.tokens,
            "preemptions": metrics.preemptions,
            "accepted_drafts": metrics.accepted_tokens,
            "cached_tokens": metrics.prefix_hit_tokens,
            "restored_blocks": metrics.restored_blocks,
        }
        note |= counts
        self.counts.update(counts)
        self.reasons.update(tally.reasons)
        self.errors.update(tally.errors)

    def result(self) -> dict[str, Any]:
        """Totals, as they are now."""
        growth = {name: self._growth(f"closed_{part}mb") for name, part in _MEMORY.items()}
        within = [r["growth_percent"] for r in self.rounds if r.get("growth_percent") is not None]
        return {
            "artifact": self.artifact.name,
            "seed": self.seed,
            "minutes": round((time.monotonic() - self.begun) / 60, 2),
            "rounds": len(self.rounds),
            **self.counts,
            "ended_by": dict(self.reasons),
            "errors": dict(self.errors),
            "second_half_growth_percent": {k: g and round(g, 3) for k, g in growth.items()},
            "growth_within_rounds_percent": within,
            "first_differences": self.differing[:_SHOWN],
            "every_round": self.rounds,
        }

    def _growth(self, key: str) -> float | None:
        noted = [(one["ended_s"], one[key]) for one in self.rounds if key in one]
        return growth_percent(noted) if noted else None


def supported_kinds(artifact: Path, load: dict[str, Any], draft: Path | None) -> tuple[str, ...]:
    """The ways to draft that the artifact can; loads it for each."""
    found = []
    for kind in KINDS:
        drafting = {"speculate": kind, "num_speculative_tokens": 1, **draft_of(kind, draft)}
        try:
            optc.load(artifact, **load, **drafting).close()
        except optc.OptcError as error:
            print(f"{kind}: {error}", flush=True)
        else:
            found.append(kind)
    return tuple(found)


def prepared(arguments: argparse.Namespace, spill_folder: str) -> Soak:
    """A run that has not begun."""
    load: dict[str, Any] = {"threads": arguments.threads, "verify": "size"}
    with optc.load(arguments.artifact, **load) as engine:
        spec, tokenizer = engine.spec, engine.tokenizer
    if tokenizer is None or not spec.batch_invariant or spec.kv_layout != "paged":
        raise SystemExit("the artifact needs a tokenizer and a batch-invariant engine with pages")
    kinds = supported_kinds(arguments.artifact, load, arguments.draft)
    adapters = write_adapters(spec.adapters, Path(spill_folder))
    draws = Draws(
        spec, kinds, tokenizer.encode, spill_folder, arguments.draft, tuple(sorted(adapters))
    )
    return Soak(arguments.artifact, load, draws, arguments.seed, arguments.clients, adapters)


def verdict(result: dict[str, Any]) -> int:
    """The exit code of a run that came to its end."""
    growth = [g for g in result["second_half_growth_percent"].values() if g is not None]
    bad = result["errors"] or result.get("differences") or any(g >= MOST_GROWTH for g in growth)
    return 1 if bad or not result.get("compared") else 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draft", type=Path, help="artifact of a model that drafts")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--round-seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=usable_threads())
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OPTC_CACHE"] = folder
        soak = prepared(arguments, folder)
        code = 130
        try:
            soak.run(time.monotonic() + 60 * arguments.minutes, arguments.round_seconds)
            code = verdict(soak.result())
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        finally:
            result = soak.result()
            if arguments.output is not None:
                arguments.output.write_text(json.dumps(result, indent=1, default=str) + "\n")
            result.pop("every_round")
            print(json.dumps(result, indent=1, default=str), flush=True)
    return code


if __name__ == "__main__":
    measure_exactly("benchmarks.soak")
    sys.exit(main())
