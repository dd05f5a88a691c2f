"""Latencies of requests and counters of the engine. Times are seconds of a monotonic clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from optc.runtime.metrics.latencies import Latencies
from optc.runtime.metrics.step_workload import StepWorkload
from optc.runtime.requests.request_metrics import RequestMetrics

if TYPE_CHECKING:
    from optc.runtime.scheduling.chunks import Chunk


#: Counters of `EngineMetrics` that only grow.
_ADDED_UP = (
    "steps",
    "step_s",
    "prompt_tokens",
    "output_tokens",
    "drafted_tokens",
    "accepted_tokens",
    "forked",
    "prefix_lookup_tokens",
    "prefix_hit_tokens",
    "preemptions",
    "kv_use_sum",
)


@dataclass
class EngineMetrics:
    """Counters since the engine started, and what it holds now.

    Attributes:
        steps: Calls of the executable.
        step_s: Time inside the executable.
        prompt_tokens: Rows computed for tokens of prompts, recomputed ones included.
        output_tokens: Tokens drawn.
        drafted_tokens: Tokens that were drafted and verified.
        accepted_tokens: Those of them that the model drew too.
        forced_tokens: Output that grammars determined, so that it was not drawn.
        forked: Completions that took over the computed prompt of another one of n.
        prefix_lookup_tokens: Tokens of requests at their admission, each preemption anew.
        prefix_hit_tokens: Those of them whose keys and values came from the prefix cache.
        preemptions: Requests whose blocks were taken.
        answer_lookups: Requests that `load`'s ``answer_cache`` might have answered.
        answer_hits: Those of them that it did; they are in no other counter.
        finished: Completions by finish reason.
        running: Completions that hold KV blocks now.
        waiting: Completions in the queue now.
        free_blocks: KV blocks by group that requests can have now, cached ones included.
        spilled_blocks: Blocks outside of the pools, by `load`'s ``prefix_spill``.
        restored_blocks: How often one of them was brought back.
        cached_blocks: Those of them that hold a prefix which may be used again.
        total_blocks: All KV blocks by group.
        kv_use_sum: Share of the KV blocks that requests hold, of the fullest group, added up over
            the steps.
        kv_use_peak: Its largest value.
        work: What the steps computed, for MBU and MFU.
        latencies: Of the completions that ended, cancelled and failed ones left out.
    """

    steps: int = 0
    step_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    forced_tokens: int = 0
    forked: int = 0
    prefix_lookup_tokens: int = 0
    prefix_hit_tokens: int = 0
    preemptions: int = 0
    answer_lookups: int = 0
    answer_hits: int = 0
    finished: dict[str, int] = field(default_factory=dict)  # no Counter: asdict breaks those
    running: int = 0
    waiting: int = 0
    free_blocks: tuple[int, ...] = ()
    cached_blocks: tuple[int, ...] = ()
    spilled_blocks: int = 0
    restored_blocks: int = 0
    total_blocks: tuple[int, ...] = ()
    kv_use_sum: float = 0.0
    kv_use_peak: float = 0.0
    work: StepWorkload = field(default_factory=StepWorkload)
    latencies: Latencies = field(default_factory=Latencies)

    def count_step(
        self,
        chunks: Sequence[Chunk[Any]],
        logit_rows: int,
        seconds: float,
        available: Sequence[int],
    ) -> None:
        """Add a step that gave ``logit_rows`` rows of logits and took ``seconds``; ``available``
        are the free blocks during it."""
        self.steps += 1
        self.step_s += seconds
        sequences = []
        for request, start, rows, _ in chunks:
            length = start + rows
            sequences.append((rows, length))
            if start < request.num_prompt:
                self.prompt_tokens += min(length, request.num_prompt) - start
        self.work.add_step(sequences, logit_rows)
        use = 1 - min(a / t for a, t in zip(available, self.total_blocks, strict=True))
        self.kv_use_sum += use
        self.kv_use_peak = max(self.kv_use_peak, use)

    def count_end(self, reason: str, request: RequestMetrics) -> None:
        """Add a completion that has ended."""
        self.finished[reason] = self.finished.get(reason, 0) + 1
        if reason in ("stop", "length"):
            self.latencies.observe(request)

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON takes it: the counters by their names, shares and rates derived from
        them, ``work``, and ``latencies`` as of `Latencies.to_json`, in milliseconds, and
        ``histograms`` as of `Latencies.histograms`, in seconds."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        derived = ("acceptance_rate", "tokens_per_pass", "kv_use_mean", "prefix_hit_rate")
        return {
            **{name: list(v) if isinstance(v, tuple) else v for name, v in plain.items()},
            **{name: getattr(self, name) for name in derived},
            "finished": dict(self.finished),
            "work": asdict(self.work),
            "latencies": self.latencies.to_json(),
            "histograms": self.latencies.histograms(),
        }

    def __repr__(self) -> str:
        return (
            f"<optc.EngineMetrics {self.steps} steps, {self.prompt_tokens} prompt tokens, "
            f"{self.output_tokens} new ones, {self.running} running, {self.waiting} waiting>"
        )

    def _repr_html_(self) -> str:
        from optc.system.notebook.tables import html_table  # only notebooks need it

        values = self.to_json()
        latencies = values.pop("latencies")
        columns = ("", *next(iter(latencies.values())))
        rows = [(name, *times.values()) for name, times in latencies.items()]
        counted = [(name, one) for name, one in values.items() if not isinstance(one, dict)]
        return html_table("latencies", columns, rows) + html_table(repr(self), (), counted)

    def copy(self) -> EngineMetrics:
        """The counters of now in an object of its own."""
        return replace(
            self,
            finished=self.finished.copy(),
            work=self.work.copy(),
            latencies=self.latencies.copy(),
        )

    def since(self, before: EngineMetrics) -> EngineMetrics:
        """Counts after ``before``; queues, blocks, the peak and the latencies are those of now."""
        added = {name: getattr(self, name) - getattr(before, name) for name in _ADDED_UP}
        ended = {r: n - before.finished.get(r, 0) for r, n in self.finished.items()}
        finished = {reason: count for reason, count in ended.items() if count}
        return replace(self, **added, finished=finished, work=self.work.since(before.work))

    @property
    def acceptance_rate(self) -> float | None:
        """Fraction of the verified drafts that the model drew too; None without drafts."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else None

    @property
    def tokens_per_pass(self) -> float | None:
        """Tokens that a request gets from one pass of the model, 1 without speculation; None
        before the first. Drafts accepted beyond the end of a request make it a little larger."""
        passes = self.output_tokens - self.accepted_tokens
        return self.output_tokens / passes if passes > 0 else None

    @property
    def kv_use_mean(self) -> float:
        """Mean over the steps of the share of the KV blocks that requests hold."""
        return self.kv_use_sum / max(1, self.steps)

    @property
    def prefix_hit_rate(self) -> float:
        """Fraction of looked-up tokens that the prefix cache had; 0 before the first."""
        return self.prefix_hit_tokens / max(1, self.prefix_lookup_tokens)
