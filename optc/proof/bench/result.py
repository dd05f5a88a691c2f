"""`BenchResult`: what a benchmark measured at one concurrency."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class BenchResult:
    """Figures at one concurrency; throughputs are of all requests together.

    Attributes:
        concurrency: Requests at once.
        prompt_tokens: Tokens of each prompt.
        output_tokens: Tokens generated for each.
        prefill_tokens_per_s: As of `optc.proof.bench.throughput`.
        decode_tokens_per_s: As of `optc.proof.bench.throughput`; None with fewer than two output
            tokens.
        ttft_ms: Percentiles of the time to first token: p50, p90, p99.
        tpot_ms: Percentiles of the time per output token after the first; None values with fewer
            than two output tokens.
        mbu: Memory bandwidth utilization of decode; None without instruments.
        mfu: Utilization of the arithmetic peak by prefill; None without instruments.
        disk_bytes_per_token: Read from the disk for a token that was generated, its share of the
            prompt included; 0 where all weights stay in memory.
        page_faults_per_token: Page faults that waited for the disk, likewise.
    """

    concurrency: int
    prompt_tokens: int
    output_tokens: int
    prefill_tokens_per_s: float
    decode_tokens_per_s: float | None
    ttft_ms: dict[str, float | None]
    tpot_ms: dict[str, float | None]
    mbu: float | None = None
    mfu: float | None = None
    disk_bytes_per_token: float = 0.0
    page_faults_per_token: float = 0.0


def result_json(result: BenchResult) -> dict[str, Any]:
    """One element of ``results`` in ``optc bench --json``."""
    return asdict(result)
